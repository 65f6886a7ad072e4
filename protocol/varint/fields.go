package varint

// Fields appends the fields of a record, or reads them: one list of fields does both.
//
//	func (x *Item) fields(f *varint.Fields) {
//		f.Uint(&x.ID, &x.Epoch)
//		f.Text(&x.Name, maxName)
//	}
//
//	b = varint.Encode(b, x.fields)
//	varint.Decode(&reader, x.fields)
//
// While it appends it changes none of the values.
type Fields struct {
	r *Reader // nil: fields are appended to b
	b []byte
}

// Encode appends the fields of a record.
func Encode(b []byte, fields func(*Fields)) []byte {
	f := Fields{b: b}
	fields(&f)
	return f.b
}

// Decode reads the fields of a record. What is wrong with them, the reader says.
func Decode(r *Reader, fields func(*Fields)) { fields(&Fields{r: r}) }

// Reading reports whether fields are read, and not appended.
func (f *Fields) Reading() bool { return f.r != nil }

// Fail marks the record being read as damaged.
func (f *Fields) Fail() {
	if f.r != nil {
		f.r.Fail()
	}
}

// Uint is numbers.
func (f *Fields) Uint(numbers ...*uint64) {
	for _, v := range numbers {
		if f.r != nil {
			*v = f.r.Uint()
		} else {
			f.b = Append(f.b, *v)
		}
	}
}

// Uint32 is numbers of at most 32 bits.
func (f *Fields) Uint32(numbers ...*uint32) {
	for _, v := range numbers {
		if f.r != nil {
			*v = f.r.Uint32()
		} else {
			f.b = Append(f.b, uint64(*v))
		}
	}
}

// Bool is flags.
func (f *Fields) Bool(flags ...*bool) {
	for _, v := range flags {
		if f.r != nil {
			*v = f.r.Bool()
		} else {
			f.b = AppendBool(f.b, *v)
		}
	}
}

// Byte is one byte.
func Byte[T ~uint8](f *Fields, v *T) {
	if f.r != nil {
		*v = T(f.r.Byte())
	} else {
		f.b = append(f.b, byte(*v))
	}
}

// Text is a string of at most limit bytes. A longer one can be appended, and not read. It is
// copied.
func (f *Fields) Text(v *string, limit int) {
	if f.r != nil {
		*v = string(f.r.Bytes(limit))
	} else {
		f.b = AppendBytes(f.b, *v)
	}
}

// Bytes is a byte string, with the rules of Text. An empty one is read as nil.
func (f *Fields) Bytes(v *[]byte, limit int) {
	if f.r != nil {
		*v = f.r.Copy(limit)
	} else {
		f.b = AppendBytes(f.b, *v)
	}
}

// Fixed is a field of fixed length.
func (f *Fields) Fixed(field []byte) {
	if f.r != nil {
		f.r.Fixed(field)
	} else {
		f.b = append(f.b, field...)
	}
}

// List is a list. Reading grows it with the bytes that are there: a count alone allocates nothing.
// A damaged one is nil.
func List[T any](f *Fields, list *[]T, limit int, fields func(*T, *Fields)) {
	if f.r == nil {
		f.b = Append(f.b, uint64(len(*list)))
		for i := range *list {
			fields(&(*list)[i], f)
		}
		return
	}
	*list = nil
	for range f.r.Count(limit) {
		var x T
		fields(&x, f)
		if f.r.Failed {
			*list = nil
			return
		}
		*list = append(*list, x)
	}
}
