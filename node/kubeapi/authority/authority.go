// Package authority owns the certificate authority of monopod's Kubernetes API: it signs server and client certificates, and writes
// kubeconfigs.
//
// It must not decide what users may do. An existing authority is never replaced, because clients trust it: a damaged one is an error.
//
// Goroutines: none.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"monopod/internal/atomicfile"
)

// Config configures an Authority.
type Config struct {
	// Dir is the directory with the files of the authority; it is created on demand.
	Dir string
	// Names returns the host names and addresses of the machine for the server certificate.
	Names func() (dns []string, addresses []netip.Addr)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Authority is a certificate authority in a directory. Its methods may be called concurrently.
type Authority struct {
	dir   string
	names func() (dns []string, addresses []netip.Addr)
	now   func() time.Time
	log   *slog.Logger

	mu sync.Mutex
	// mu guards the files and the fields below.
	signer *signer
	// checked is when the names in the server certificate were last compared.
	checked time.Time
}

// signer is the certificate of the authority with its key.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// pem is the certificate in the form sent to clients.
	pem []byte
}

// New returns an Authority. It does no I/O.
func New(cfg Config) *Authority {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Names == nil {
		cfg.Names = func() ([]string, []netip.Addr) { return nil, nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Authority{dir: cfg.Dir, names: cfg.Names, now: cfg.Now, log: cfg.Log}
}

// Validity of certificates. The CA certificate cannot be renewed without updating all clients.
const (
	validAuthority = 30 * 365 * 24 * time.Hour
	validServer    = 365 * 24 * time.Hour
	// ValidClient is the validity of client certificates.
	ValidClient = 90 * 24 * time.Hour
	// renewAhead is the remaining validity at which the certificate of the server is renewed.
	renewAhead = 90 * 24 * time.Hour
)

// always is a time that no clock precedes: machines without a battery boot in 1970, and their certificates must be valid then.
func always() time.Time { return time.Unix(0, 0).UTC() }

// earliest precedes any correct clock: a certificate issued while the clock is earlier gets the validity of one issued at this time.
func earliest() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// expiry returns when a certificate that is issued now expires.
func (a *Authority) expiry(validity time.Duration) time.Time {
	now := a.now()
	if now.Before(earliest()) {
		now = earliest()
	}
	return now.Add(validity).UTC().Truncate(time.Second)
}

// caFile holds the CA certificate and its key: in one file, so that they always match.
func (a *Authority) caFile() string { return filepath.Join(a.dir, "ca.pem") }

// maxFile bounds the size of files that are read; files of this package are smaller.
const maxFile = 64 << 10

// load returns the authority; it is created if missing.
func (a *Authority) loadLocked() (*signer, error) {
	if a.signer != nil {
		return a.signer, nil
	}
	data, err := atomicfile.Read(a.caFile(), maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if data, err = a.createLocked(); err != nil {
			return nil, fmt.Errorf("create the CA of the Kubernetes API: %w", err)
		}
	case err != nil:
		return nil, a.damaged(err)
	}
	s, err := parse(data)
	if err != nil {
		return nil, a.damaged(err)
	}
	a.signer = s
	return s, nil
}

// damaged wraps an error with how to recover from an unusable authority.
func (a *Authority) damaged(err error) error {
	return fmt.Errorf("CA of the Kubernetes API: %s: %w; restore the file from a backup, or remove it and recreate all kubeconfigs "+
		"with `monopod kubeconfig`; existing ones stop working", a.caFile(), err)
}

func (a *Authority) createLocked() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		// The number distinguishes successive authorities: clients look up the issuer by name.
		SerialNumber: serial, Subject: pkix.Name{CommonName: "monopod-api-" + serial.Text(36)[:8]},
		NotBefore: always(), NotAfter: a.expiry(validAuthority),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	data, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	if err := a.write(a.caFile(), data); err != nil {
		return nil, err
	}
	a.log.Info("created the CA of the Kubernetes API", "file", a.caFile())
	return data, nil
}

func (a *Authority) write(file string, data []byte) error {
	if err := atomicfile.MkdirAll(a.dir); err != nil {
		return err
	}
	return atomicfile.Write(file, data, 0o600)
}

// parse decodes the output of encode, and checks that it is a CA certificate.
func parse(data []byte) (*signer, error) {
	cert, key, err := decode(data)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errors.New("its certificate is not that of an authority")
	}
	return &signer{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})}, nil
}

func decode(data []byte) (cert *x509.Certificate, key *ecdsa.PrivateKey, err error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		switch block.Type {
		case "CERTIFICATE":
			cert, err = x509.ParseCertificate(block.Bytes)
		case "PRIVATE KEY":
			var parsed any
			if parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				key, _ = parsed.(*ecdsa.PrivateKey)
			}
		}
		if err != nil {
			return nil, nil, err
		}
	}
	switch {
	case cert == nil:
		return nil, nil, errors.New("it has no certificate in PEM")
	case key == nil:
		return nil, nil, errors.New("it has no ECDSA key in PEM")
	case !key.PublicKey.Equal(cert.PublicKey):
		return nil, nil, errors.New("its key does not belong to its certificate")
	}
	return cert, key, nil
}

// encode returns a certificate with its key in PEM.
func encode(der []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...,
	), nil
}

func serialNumber() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return n.SetBit(n, 120, 1), nil // always of the same length
}

// sign returns a certificate with a new key.
func (s *signer) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = serialNumber(); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.KeyUsage, template.BasicConstraintsValid = always(), x509.KeyUsageDigitalSignature, true
	if template.NotAfter.After(s.cert.NotAfter) {
		template.NotAfter = s.cert.NotAfter
	}
	der, err = x509.CreateCertificate(rand.Reader, template, s.cert, &key.PublicKey, s.key)
	return der, key, err
}

// CAFile returns the file with the certificate of the authority, which verifies client certificates. It is created if missing.
func (a *Authority) CAFile() (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.loadLocked()
	return a.caFile(), err
}

// Bundle returns the certificate of the authority in PEM, for clients that verify the server.
func (a *Authority) Bundle() ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.loadLocked()
	if err != nil {
		return nil, err
	}
	return s.pem, nil
}

// Client returns a client certificate and its key in PEM, for 90 days.
func (a *Authority) Client(user string, groups []string) (cert, key []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, err := a.loadLocked()
	if err != nil {
		return nil, nil, err
	}
	der, private, err := s.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, NotAfter: a.expiry(ValidClient), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("sign a client certificate: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
