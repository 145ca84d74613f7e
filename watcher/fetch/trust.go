package fetch

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"monopod/internal/cause"
	"monopod/internal/regular"
)

// maxTrustFile is more than a file of authorities has.
const maxTrustFile = 4 << 20

// Trust names files in PEM. They are read again before each request, so that renewed ones count at once.
type Trust struct {
	// CAFile holds the authorities that vouch for the server, instead of those of the system; empty: those.
	CAFile string
	// CertFile and KeyFile are what to show to a server that asks; both or none.
	CertFile, KeyFile string
}

// trustFiles makes transports from files.
type trustFiles struct {
	files Trust
	now   func() time.Time
	// sum is the hash of the files that the transport in use was made from.
	sum [sha256.Size]byte
}

// refresh gives the client a new transport if a file has changed.
func (t *trustFiles) refresh(client *http.Client) error {
	var data [3][]byte
	for i, path := range []string{t.files.CAFile, t.files.CertFile, t.files.KeyFile} {
		if path == "" {
			continue
		}
		var err error
		if data[i], err = regular.ReadFile(path, maxTrustFile); err != nil {
			return cause.Wrap(err, badFile(path))
		}
	}
	sum := sumOf(data[:]...)
	if client.Transport != nil && sum == t.sum {
		return nil
	}
	transport, err := t.transport(data[0], data[1], data[2])
	if err != nil {
		return err
	}
	if client.Transport != nil {
		client.CloseIdleConnections()
	}
	client.Transport, t.sum = transport, sum
	return nil
}

// transport has connections of its own, which end with the source, and the proxy of the environment.
func (t *trustFiles) transport(authorities, cert, key []byte) (*http.Transport, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Time: t.now}
	if t.files.CAFile != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, cause.Wrap(fmt.Errorf("%s: contains no certificate in PEM", t.files.CAFile), badFile(t.files.CAFile))
		}
	}
	if t.files.CertFile != "" {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, cause.Wrap(fmt.Errorf("%s, %s: %w", t.files.CertFile, t.files.KeyFile, err), badFile(t.files.CertFile))
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{}
	}
	out := base.Clone()
	out.TLSClientConfig, out.ForceAttemptHTTP2 = cfg, true
	out.MaxResponseHeaderBytes = 256 << 10
	return out, nil
}

// explain makes the error of a request independent of the time of day, and adds advice where the client is at fault.
func (f *httpFetcher) explain(err error) error {
	invalid, ok := errors.AsType[x509.CertificateInvalidError](err)
	if !ok || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return err
	}
	now, day := f.cfg.Now(), time.DateOnly
	if now.Before(invalid.Cert.NotBefore) {
		return expired("%s: its certificate is not valid before %s, and the clock of this machine shows %s; set the clock", f.name, invalid.Cert.NotBefore.UTC().Format(day), now.UTC().Format(day))
	}
	return expired("%s: its certificate expired on %s, and the clock of this machine shows %s; renew the certificate, or set the clock", f.name, invalid.Cert.NotAfter.UTC().Format(day), now.UTC().Format(day))
}

func expired(format string, args ...any) error {
	return cause.Wrap(fmt.Errorf(format, args...), cause.Cause{Kind: cause.InputUnreachable, Fault: cause.CertificateExpired})
}
