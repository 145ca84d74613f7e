package fetch

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
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"monopod/watcher/watchertest"
)

// authority signs certificates of tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(100 * 365 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(template, nil)
	return a
}

// sign signs a certificate, with its own key when by is nil.
func (a *authority) sign(template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	watchertest.Must(a.t, err)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	watchertest.Must(a.t, err)
	cert, err := x509.ParseCertificate(der)
	watchertest.Must(a.t, err)
	return cert, key
}

// leaf is a certificate for 127.0.0.1, of a server or of a client.
func (a *authority) leaf(serial int64, from, until time.Time) (certPEM, keyPEM []byte) {
	a.t.Helper()
	cert, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "leaf"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: from, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	watchertest.Must(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) pair(from, until time.Time) tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.leaf(2, from, until))
	watchertest.Must(a.t, err)
	return pair
}

// file writes the authority's certificate into a directory.
func (a *authority) file(dir string) string {
	a.t.Helper()
	path := filepath.Join(dir, "ca.pem")
	watchertest.Replace(a.t, path, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
	return path
}

// tlsServer is a webServer that shows a certificate, which can be changed under way.
func tlsServer(t *testing.T, h http.HandlerFunc, cfg *tls.Config) *webServer {
	t.Helper()
	w := unstartedWebServer(h)
	w.TLS = cfg
	w.StartTLS()
	t.Cleanup(w.Close)
	return w
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}
