package fetch

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
)

// causeOf returns why a place could not be read. Errors of net, crypto/tls and os have types of their own.
func causeOf(err error) cause.Cause {
	c := cause.Of(err)
	c.Kind = cause.InputUnreachable
	if c.Fault == "" {
		c.Fault, c.Path = faultOf(err)
	}
	return c
}

// faultOf returns what is wrong with a server or, with its path, with a file that a request needs.
func faultOf(err error) (fault cause.Fault, path string) {
	if s, ok := errors.AsType[*statusError](err); ok {
		return statusFault(s.code), ""
	}
	if errors.Is(err, errRedirect) {
		return cause.Redirected, ""
	}
	if f := tlsFault(err); f != "" {
		return f, ""
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return cause.File, p.Path
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return cause.PlainHTTP, ""
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return cause.Lookup, ""
	}
	return "", ""
}

func statusFault(code int) cause.Fault {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return cause.Denied
	case http.StatusNotFound, http.StatusGone:
		return cause.NotFound
	}
	if code >= http.StatusInternalServerError {
		return cause.Failing
	}
	return ""
}

// tlsFault returns what is wrong with a certificate; empty: nothing is.
func tlsFault(err error) cause.Fault {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return cause.CertificateExpired
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return cause.CertificateName
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return cause.CertificateAuthority
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // an alert of the server
		return cause.CertificateRefused
	}
	return ""
}

// badFile is the cause of a request that cannot be made because of a file of this machine.
func badFile(path string) cause.Cause {
	return cause.Cause{Kind: cause.InputUnreachable, Fault: cause.File, Path: path}
}

// maxMistaken is how many documents a report names.
const maxMistaken = 100

// mistaken are the pods and workloads that an error names.
func mistaken(err error) []model.Mistaken {
	var all []model.Mistaken
	if refused, ok := errors.AsType[*Refusal](err); ok {
		err = refused.Err
	}
	for _, e := range manifests.Errors(err) {
		id, known := e.ID()
		if !known || id.Namespace == "" || e.Line == 0 || len(all) == maxMistaken {
			continue
		}
		switch id.Kind {
		case "Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob":
			all = append(all, model.Mistaken{ObjectID: id, Where: fmt.Sprintf("%s:%d", e.File, e.Line)})
		}
	}
	return all
}
