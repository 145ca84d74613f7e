package fetch

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"monopod/internal/cause"
)

func TestErrorsOfPlacesAreClassified(t *testing.T) {
	get := func(err error) error { return &url.Error{Op: "Get", URL: "https://fleet/x", Err: err} }
	status := func(code int) error {
		return &statusError{name: "https://fleet/x", code: code, status: fmt.Sprintf("%d %s", code, http.StatusText(code))}
	}
	dial := func(err error) error { return get(&net.OpError{Op: "dial", Net: "tcp", Err: err}) }
	missing := &fs.PathError{Op: "stat", Path: "/etc/monopod/token", Err: syscall.ENOENT}
	for name, tt := range map[string]struct {
		err  error
		want cause.Cause
	}{
		"redirect":          {get(fmt.Errorf("%w: it leads to another host, other", errRedirect)), cause.Cause{Fault: cause.Redirected}},
		"401":               {status(401), cause.Cause{Fault: cause.Denied}},
		"403":               {status(403), cause.Cause{Fault: cause.Denied}},
		"404":               {status(404), cause.Cause{Fault: cause.NotFound}},
		"410":               {status(410), cause.Cause{Fault: cause.NotFound}},
		"503":               {status(503), cause.Cause{Fault: cause.Failing}},
		"429":               {status(429), cause.Cause{}},
		"a token":           {fmt.Errorf("https://fleet/x: header Authorization: %w", missing), cause.Cause{Fault: cause.File, Path: "/etc/monopod/token"}},
		"a CA":              {cause.Wrap(errors.New("/etc/ca.pem: contains no certificate in PEM"), badFile("/etc/ca.pem")), cause.Cause{Fault: cause.File, Path: "/etc/ca.pem"}},
		"unknown authority": {get(fmt.Errorf("tls: failed to verify certificate: %w", x509.UnknownAuthorityError{})), cause.Cause{Fault: cause.CertificateAuthority}},
		"expired":           {get(x509.CertificateInvalidError{Reason: x509.Expired}), cause.Cause{Fault: cause.CertificateExpired}},
		"another name":      {get(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "fleet"}), cause.Cause{Fault: cause.CertificateName}},
		"ours is refused":   {get(&net.OpError{Op: "remote error", Err: errors.New("tls: unknown certificate authority")}), cause.Cause{Fault: cause.CertificateRefused}},
		"plain HTTP":        {get(http.ErrSchemeMismatch), cause.Cause{Fault: cause.PlainHTTP}},
		"no such host":      {dial(&net.DNSError{Err: "no such host", Name: "fleet", IsNotFound: true}), cause.Cause{Fault: cause.Lookup}},
		"refused":           {dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), cause.Cause{}},
		"cut off":           {errors.New("https://fleet/x: read answer: unexpected EOF"), cause.Cause{}},
	} {
		tt.want.Kind = cause.InputUnreachable
		if got := causeOf(tt.err); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
