package protocol

import "encoding/binary"

// The msgpack bytes that this package writes or distinguishes.
const (
	fixMap      = 0x80
	fixArray    = 0x90
	fixStr      = 0xa0
	nilByte     = 0xc0
	falseByte   = 0xc2
	trueByte    = 0xc3
	bin8        = 0xc4
	bin16       = 0xc5
	bin32       = 0xc6
	ext8        = 0xc7
	float32Byte = 0xca
	uint8Byte   = 0xcc
	uint16Byte  = 0xcd
	uint32Byte  = 0xce
	uint64Byte  = 0xcf
	int8Byte    = 0xd0
	int16Byte   = 0xd1
	int32Byte   = 0xd2
	int64Byte   = 0xd3
	fixExt1     = 0xd4
	str8        = 0xd9
	str16       = 0xda
	str32       = 0xdb
	array16     = 0xdc
	array32     = 0xdd
	map16       = 0xde
	negFixInt   = 0xe0
)

// appendUint writes an unsigned integer in the fewest bytes.
func appendUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= 0xff:
		return append(b, uint8Byte, byte(v))
	case v <= 0xffff:
		return append(b, uint16Byte, byte(v>>8), byte(v))
	case v <= 0xffffffff:
		return binary.BigEndian.AppendUint32(append(b, uint32Byte), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, uint64Byte), v)
	}
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, trueByte)
	}
	return append(b, falseByte)
}

// appendBin writes bytes; nil is written as empty.
func appendBin(b, v []byte) []byte { return append(appendBinHead(b, len(v)), v...) }

// appendBinHead writes the head of n bytes.
func appendBinHead(b []byte, n int) []byte {
	switch {
	case n <= 0xff:
		return append(b, bin8, byte(n))
	case n <= 0xffff:
		return append(b, bin16, byte(n>>8), byte(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, bin32), uint32(n))
	}
}

func appendStr(b []byte, v string) []byte {
	switch n := len(v); {
	case n < 32:
		b = append(b, fixStr|byte(n))
	case n <= 0xff:
		b = append(b, str8, byte(n))
	case n <= 0xffff:
		b = append(b, str16, byte(n>>8), byte(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, str32), uint32(n))
	}
	return append(b, v...)
}

// appendArray writes the head of an array of n values.
func appendArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, fixArray|byte(n))
	case n <= 0xffff:
		return append(b, array16, byte(n>>8), byte(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, array32), uint32(n))
	}
}
