package apitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Request describes a certificate.
type Request struct {
	// Name and Groups are common name and organizations.
	Name   string
	Groups []string
	// Server: it is for a server on 127.0.0.1, else for a client.
	Server bool
	// For is how long it is valid; zero: a day.
	For time.Duration
}

// Pair is a certificate and its key, PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority makes one.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t)}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "apitest"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.cert = sign(t, cert, cert, &a.key.PublicKey, a.key)
	return a
}

// PEM is the certificate of the authority.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Pool is the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Issue makes a certificate with a key of its own.
func (a *Authority) Issue(t testing.TB, r Request) Pair {
	t.Helper()
	key := newKey(t)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: a.certificate(t, r, &key.PublicKey), Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
}

// Sign answers a certificate signing request, PEM.
func (a *Authority) Sign(t testing.TB, request []byte, life time.Duration) []byte {
	t.Helper()
	block, _ := pem.Decode(request)
	if block == nil {
		t.Fatalf("not a request: %s", request)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err := csr.CheckSignature(); err != nil {
		t.Fatal(err)
	}
	cert := template(Request{Name: csr.Subject.CommonName, Groups: csr.Subject.Organization, Server: len(csr.IPAddresses)+len(csr.DNSNames) > 0, For: life})
	cert.IPAddresses, cert.DNSNames = csr.IPAddresses, csr.DNSNames
	signed := sign(t, cert, a.cert, csr.PublicKey, a.key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed.Raw})
}

func (a *Authority) certificate(t testing.TB, r Request, public any) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(t, template(r), a.cert, public, a.key).Raw})
}

func template(r Request) *x509.Certificate {
	if r.For == 0 {
		r.For = 24 * time.Hour
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: r.Name, Organization: r.Groups},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(r.For), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if r.Server {
		cert.ExtKeyUsage, cert.IPAddresses = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	return cert
}

func sign(t testing.TB, cert, parent *x509.Certificate, public any, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Write stores a pair as path.crt and path.key.
func (p Pair) Write(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path+".crt", p.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".key", p.Key, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TLS is the pair as crypto/tls wants it.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
