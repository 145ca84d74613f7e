package streams

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxText is the length to which error texts are truncated.
const maxText = 8 << 10

// answer is a ResponseWriter that holds back plain-text errors until they are converted to a Status. It must be used by one goroutine.
type answer struct {
	http.ResponseWriter
	// code is the code of an error; 0 if there is none.
	code int
	text bytes.Buffer
	// begun reports whether the header of a successful response has been written.
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	switch {
	case a.code != 0: // only the first call counts
	case code >= http.StatusBadRequest && !a.begun:
		a.code = code
	default:
		a.begun = a.begun || code >= http.StatusOK
		a.ResponseWriter.WriteHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	if a.code == 0 {
		a.begun = true
		return a.ResponseWriter.Write(b)
	}
	a.text.Write(b[:min(len(b), maxText-a.text.Len())])
	return len(b), nil
}

// FlushError is called by http.ResponseController.
func (a *answer) FlushError() error {
	if a.code != 0 {
		return nil
	}
	a.begun = true
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.begun = true
	return http.NewResponseController(a.ResponseWriter).Hijack()
}

// Unwrap is called by http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// err returns the error that was held back, nil if there was none.
func (a *answer) err() error {
	if a.code == 0 {
		return nil
	}
	h := a.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "X-Content-Type-Options"} {
		h.Del(name)
	}
	return statusOf(a.code, a.text.String())
}

// statusOf returns a Status error with a code and a text.
func statusOf(code int, text string) *apierrors.StatusError {
	reason := map[int]metav1.StatusReason{
		http.StatusBadRequest: metav1.StatusReasonBadRequest, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
		http.StatusGatewayTimeout: metav1.StatusReasonTimeout, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	}[code]
	text = strings.TrimSpace(text)
	if text == "" {
		text = http.StatusText(code)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: text, Details: &metav1.StatusDetails{},
	}}
}
