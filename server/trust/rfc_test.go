package trust

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// The examples of RFC 7515, appendix A, and of RFC 7519, sections 3.1 and 6.1. All have these
// claims.
const (
	rfcClaims = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
	rfcKeys   = `{"keys":[
		{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"},
		{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`
)

// TestExamplesOfTheRFCs: those with a signature that counts here pass up to the first claim that
// they lack, an audience; without their end they do not. The others are refused by their algorithm.
func TestExamplesOfTheRFCs(t *testing.T) {
	kept, _, err := ReadKeys([]byte(rfcKeys))
	if err != nil {
		t.Fatal(err)
	}
	all := NewSet([]meta.Trust{{Name: "joe", Issuer: "joe", Audience: "signalbox", Keys: kept}}, nil)
	const rs256 = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
	const es256 = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
	for _, x := range []struct {
		name, header, signature string
		key                     int // which one the trust has alone: the examples name none
		check                   string
	}{
		{"7515 A.2", "eyJhbGciOiJSUzI1NiJ9", rs256, 0, "not meant for the trust's audience"},
		{"7515 A.3", "eyJhbGciOiJFUzI1NiJ9", es256, 1, "not meant for the trust's audience"},
		{"7515 A.2 cut", "eyJhbGciOiJSUzI1NiJ9", rs256[:len(rs256)-4], 0, "the signature is wrong"},
		{"7515 A.3 with another's key", "eyJhbGciOiJFUzI1NiJ9", es256, 0, "not one of the key"},
		{"7515 A.1, 7519 3.1", "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", 0,
			"the algorithm is none of"},
		{"7515 A.5, 7519 6.1", "eyJhbGciOiJub25lIn0", "", 1, "the algorithm is none of"},
	} {
		keys := all.sources[0].keys
		i := 0
		for j := range keys {
			if isRSA := keyType(keys[j].Key) == "RSA-2048"; isRSA == (x.key == 0) {
				i = j
			}
		}
		one := &Set{sources: []source{{all.sources[0].Trust, keys[i : i+1]}}}
		_, err := one.Check([]byte(x.header+"."+rfcClaims+"."+x.signature), time.Unix(1300819379, 0))
		if err == nil || !strings.Contains(err.Error(), x.check) {
			t.Errorf("%s: %v, want %q", x.name, err, x.check)
		}
	}
}
