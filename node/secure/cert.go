package secure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"monopod/internal/atomicfile"
	"monopod/internal/regular"
)

// Certificate is a server certificate in two files that are re-read when they change.
type Certificate struct {
	certFile, keyFile string
	// ensure, which may be nil, creates the files if they are missing or unusable. known is the certificate last read from them.
	ensure func(known *x509.Certificate) error
	// instead, which may be nil, is used while the files contain no certificate.
	instead *Certificate
	log     *slog.Logger

	mu sync.Mutex
	// mu guards the fields below.
	seen  stamp
	pair  *tls.Certificate
	wrong error
}

type selfSigned struct {
	names []string
	ips   func() []net.IP
	now   func() time.Time
}

// Files returns a certificate whose files are maintained by the user.
func Files(certFile, keyFile string, log *slog.Logger) *Certificate {
	return &Certificate{certFile: certFile, keyFile: keyFile, log: log}
}

// Issued returns a certificate that another component will write into a file, with its key. Until then, another one is used.
func Issued(file string, until *Certificate, log *slog.Logger) *Certificate {
	return &Certificate{certFile: file, keyFile: file, instead: until, log: log}
}

// SelfSigned returns a certificate that is created in dir when it is needed, and again when it expires or the name changes.
func SelfSigned(dir, name string, ips func() []net.IP, log *slog.Logger) *Certificate {
	return selfSignedIn(dir, &selfSigned{names: []string{name, "localhost"}, ips: ips, now: time.Now}, log)
}

func selfSignedIn(dir string, own *selfSigned, log *slog.Logger) *Certificate {
	certFile, keyFile := filepath.Join(dir, "monopod.crt"), filepath.Join(dir, "monopod.key")
	return &Certificate{
		certFile: certFile, keyFile: keyFile, log: log,
		ensure: func(known *x509.Certificate) error { return own.ensure(certFile, keyFile, known) },
	}
}

// Maintained returns a certificate in a file with its key. For each connection, ensure gets the certificate last read from the file, or
// nil, and writes a new one if needed.
func Maintained(file string, ensure func(known *x509.Certificate) error, log *slog.Logger) *Certificate {
	return &Certificate{certFile: file, keyFile: file, ensure: ensure, log: log}
}

// get returns the certificate in the files. While they are invalid, it returns the previous one.
func (c *Certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ensure != nil {
		if err := c.ensure(c.leafLocked()); err != nil {
			return c.keepLocked(err)
		}
	}
	now := stampOf(c.certFile, c.keyFile)
	if c.pair != nil && now == c.seen {
		return c.pair, nil
	}
	pair, err := loadPair(c.certFile, c.keyFile)
	if errors.Is(err, fs.ErrNotExist) && c.pair == nil && c.instead != nil {
		return c.instead.get()
	}
	if err != nil {
		kept, err := c.keepLocked(fmt.Errorf("certificate: %w", err))
		if kept == nil && c.instead != nil { // a broken file is not better than none
			return c.instead.get()
		}
		return kept, err
	}
	if c.pair != nil {
		c.log.Info("certificate has changed", "file", c.certFile)
	}
	c.pair, c.seen, c.wrong = &pair, now, nil
	return c.pair, nil
}

// keepLocked returns the previous certificate, and logs each error once.
func (c *Certificate) keepLocked(err error) (*tls.Certificate, error) {
	if c.wrong == nil || c.wrong.Error() != err.Error() {
		c.wrong = err
		c.log.Error("certificate cannot be used", "err", err)
	}
	if c.pair == nil {
		return nil, err
	}
	return c.pair, nil
}

func (c *Certificate) leafLocked() *x509.Certificate {
	if c.pair == nil {
		return nil
	}
	return c.pair.Leaf
}

// stamp identifies a state of the files.
type stamp string

func stampOf(files ...string) stamp {
	var b strings.Builder
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			fmt.Fprintf(&b, "%s %d %d %v\n", f, info.Size(), info.ModTime().UnixNano(), inode(info))
		}
	}
	return stamp(b.String())
}

// loadPair is tls.LoadX509KeyPair for configured files.
func loadPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := regular.ReadFile(certFile, maxAccessFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := regular.ReadFile(keyFile, maxAccessFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// Validity of a certificate. It is long and starts early, because the clock of the machine may be wrong.
const (
	validFor   = 10 * 365 * 24 * time.Hour
	renewAhead = 30 * 24 * time.Hour
)

// epoch is earlier than any correct clock: certificates are valid from then on.
func epoch() time.Time { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) }

// ensure recreates the files unless they are usable. known is the certificate last read from them.
func (s *selfSigned) ensure(certFile, keyFile string, known *x509.Certificate) error {
	if known == nil {
		if pair, err := loadPair(certFile, keyFile); err == nil { // what cannot be read is replaced
			known = pair.Leaf
		}
	}
	if known != nil && s.serves(known) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(certFile), 0o755); err != nil {
		return fmt.Errorf("directory of certificates: %w", err)
	}
	cert, key, err := s.make()
	if err != nil {
		return fmt.Errorf("create a certificate: %w", err)
	}
	// The key is written first: a certificate without a matching key is created again.
	return errors.Join(atomicfile.Write(keyFile, key, 0o600), atomicfile.Write(certFile, cert, 0o644))
}

// serves reports whether a certificate is still valid for our name.
func (s *selfSigned) serves(cert *x509.Certificate) bool {
	return slices.Contains(cert.DNSNames, s.names[0]) && s.now().Add(renewAhead).Before(cert.NotAfter)
}

func (s *selfSigned) make() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	until := s.now()
	if until.Before(epoch()) {
		until = epoch()
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: s.names[0]}, DNSNames: s.names,
		IPAddresses: append(s.ips(), net.IPv4(127, 0, 0, 1), net.IPv6loopback),
		NotBefore:   epoch(), NotAfter: until.Add(validFor),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, // so that clients can name it as the authority that they trust
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}
