package codec

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"monopod/internal/printer"
)

const (
	// maxText limits texts of errors and warnings that were not written for clients.
	maxText = 1 << 10
	// maxWarnings limits the total size of the warnings in a response: clients reject larger headers.
	maxWarnings = 8 << 10
)

// Fail writes an error as Status, in the format that the client accepts. Errors other than *apierrors.StatusError become 504 if a context
// ended, and otherwise 500, with escaped and bounded text.
func Fail(w http.ResponseWriter, r *http.Request, err error) {
	status := Status(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	f, err := Negotiate(r, nil)
	if err != nil {
		f = &Format{media: mediaJSON, pretty: isPretty(r)}
	}
	f.zip = false
	if f.Object(w, int(status.Code), status) != nil { // every format can encode a Status
		w.WriteHeader(int(status.Code))
	}
}

// Status returns the Status that reports an error.
func Status(err error) *metav1.Status {
	var (
		status metav1.Status
		known  apierrors.APIStatus
	)
	switch {
	case errors.As(err, &known):
		status = known.Status()
	case err == nil:
		status = apierrors.NewInternalError(errors.New("unknown")).ErrStatus
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		status = apierrors.NewTimeoutError("request timed out; retry", 0).ErrStatus
	default:
		status = apierrors.NewInternalError(errors.New(limit(printer.Escape(limit(err.Error(), maxText)), maxText))).ErrStatus
	}
	status.APIVersion, status.Kind = "v1", "Status"
	if status.Status == "" {
		status.Status = metav1.StatusFailure
	}
	if status.Code < http.StatusOK || status.Code > 599 {
		status.Code = http.StatusInternalServerError
	}
	return &status
}

// Warn adds a Warning header, which kubectl prints. The text is escaped and bounded; duplicates, and warnings beyond the total limit, are
// dropped.
func Warn(w http.ResponseWriter, text string) {
	line, err := utilnet.NewWarningHeader(299, "-", limit(printer.Escape(limit(text, maxText)), maxText))
	before := w.Header().Values("Warning")
	if err != nil || slices.Contains(before, line) || len(strings.Join(before, ""))+len(line) > maxWarnings {
		return
	}
	w.Header().Add("Warning", line)
}

// limit truncates a text at a rune boundary.
func limit(text string, most int) string {
	if len(text) <= most {
		return text
	}
	at := most - len("...")
	for at > 0 && !utf8.RuneStart(text[at]) {
		at--
	}
	return text[:at] + "..."
}
