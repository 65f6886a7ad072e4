// Package certstest makes certificates for tests: an authority, and what it signs, as PEM files.
//
//	ca := certstest.New(t)
//	cert, key := ca.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
//
// Keys are P-256, made again for each certificate, and only for tests. Certificates are valid for
// both ends of a connection, as those of instances must be.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// Option changes a certificate before it is signed.
type Option func(*x509.Certificate)

// Host makes it good for a name or an address.
func Host(name string) Option {
	return func(c *x509.Certificate) {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
}

// Expired makes it one of yesterday.
func Expired() Option {
	return func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	}
}

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	c := template("test authority")
	c.Subject.CommonName += " " + c.SerialNumber.String() // clients tell authorities by their names
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{cert: parsed, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Pool has the authority's certificate alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Write writes the authority's certificate to the file ca.pem of a folder.
func (a *Authority) Write(t testing.TB, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "ca.pem")
	write(t, path, a.pem)
	return path
}

// Bundle writes the certificates of several authorities to one file.
func Bundle(t testing.TB, path string, list ...*Authority) {
	t.Helper()
	var all []byte
	for _, a := range list {
		all = append(all, a.pem...)
	}
	write(t, path, all)
}

// Issue makes a certificate for a common name, and writes NAME.pem and NAME.key. It is good for
// both ends of a connection.
func (a *Authority) Issue(t testing.TB, dir, name string, opts ...Option) (cert, key string) {
	t.Helper()
	k := newKey(t)
	c := template(name)
	c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageDigitalSignature,
		[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, o := range opts {
		o(c)
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	write(t, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
	return cert, key
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		panic(err) // the system's source of randomness does not fail
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
