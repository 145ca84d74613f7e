package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/internal/printer"
	"monopod/internal/quantity"
	"monopod/node/kubeapi/kinds"
)

// MaxBody is the size limit of request bodies, the same as in kube-apiserver.
const MaxBody = 3 << 20

// maxUnknown limits how many unknown and duplicate fields are reported.
const maxUnknown = 20

// ReadBody reads the body of a request. For larger bodies the error is 413.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		w.Header().Set("Connection", "close") // the rest is not read
		return nil, tooLarge(most)
	}
	if b, ok := r.Body.(*buffered); ok && int64(len(b.data)) <= most {
		return b.data, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, tooLarge(most)
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return nil, status
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("the body cannot be read: " + text(err))
	}
	return body, nil
}

// buffered is a body in memory.
type buffered struct {
	*bytes.Reader
	data []byte
}

// Close implements io.Closer.
func (*buffered) Close() error { return nil }

// Buffer reads the body of a request into memory, from where ReadBody returns it. For larger bodies the error is 413.
func Buffer(w http.ResponseWriter, r *http.Request, most int64) error {
	data, err := ReadBody(w, r, most)
	if err == nil {
		r.Body = &buffered{bytes.NewReader(data), data}
	}
	return err
}

func tooLarge(most int64) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", most))
}

// Decode reads an object from the body of a request, as JSON, YAML or protobuf. Missing apiVersion and kind default to those of into,
// different ones are an error. Validation is Ignore, Warn or Strict: how unknown and duplicate fields are treated.
func Decode(w http.ResponseWriter, r *http.Request, into schema.GroupVersionKind, validation string) (o runtime.Object, warnings []string, err error) {
	contentType := r.Header.Get("Content-Type")
	if _, err := bodyType(contentType); err != nil {
		return nil, nil, err
	}
	body, err := ReadBody(w, r, MaxBody)
	if err != nil {
		return nil, nil, err
	}
	return DecodeBytes(body, contentType, into, validation)
}

// DecodeBytes is Decode for a body that is in memory, such as the result of a patch. ContentType is the header value; empty means JSON.
func DecodeBytes(body []byte, contentType string, into schema.GroupVersionKind, validation string) (o runtime.Object, warnings []string, err error) {
	media, err := bodyType(contentType)
	if err != nil {
		return nil, nil, err
	}
	o, err = kinds.Scheme().New(into)
	if err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	if media == mediaProtobuf {
		if err := decodeProtobuf(body, into, o); err != nil {
			return nil, nil, err
		}
	} else if warnings, err = decodeText(body, media, into, o, validation); err != nil {
		return nil, nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(into)
	return o, warnings, nil
}

// bodyType returns the media type of a body.
func bodyType(contentType string) (string, error) {
	if contentType == "" {
		return mediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil && (media == mediaJSON || media == mediaYAML || media == mediaProtobuf) {
		return media, nil
	}
	return "", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " +
			strings.Join([]string{mediaJSON, mediaYAML, mediaProtobuf}, ", "),
	}}
}

// decodeText decodes JSON and YAML.
func decodeText(body []byte, media string, into schema.GroupVersionKind, o runtime.Object, validation string) ([]string, error) {
	data, duplicates, err := toJSON(body, media, validation)
	if err != nil {
		return nil, unrecognized(err, into, body)
	}
	var stated metav1.TypeMeta
	if err := quantity.Unmarshal(data, &stated); err != nil {
		return nil, unrecognized(fmt.Errorf("couldn't get version/kind; json parse error: %w", err), into, body)
	}
	if err := checkKind(stated.APIVersion, stated.Kind, into); err != nil {
		return nil, err
	}
	if validation == metav1.FieldValidationIgnore {
		if err := quantity.Unmarshal(data, o); err != nil {
			return nil, unfit(err, into)
		}
		return nil, nil
	}
	wrong, err := quantity.UnmarshalStrict(data, o)
	if err != nil {
		return nil, unfit(err, into)
	}
	warnings := duplicates
	for _, e := range wrong {
		warnings = append(warnings, text(e))
	}
	if more := len(warnings) - maxUnknown; more > 0 {
		warnings = append(warnings[:maxUnknown:maxUnknown], fmt.Sprintf("%d more fields are unknown or duplicate", more))
	}
	if validation == metav1.FieldValidationStrict && len(warnings) > 0 {
		return nil, unfit(errors.New("strict decoding error: "+strings.Join(warnings, ", ")), into)
	}
	return warnings, nil
}

// decodeProtobuf decodes an object in its envelope.
func decodeProtobuf(body []byte, into schema.GroupVersionKind, o runtime.Object) error {
	m, ok := o.(interface{ Unmarshal(data []byte) error })
	switch {
	case !ok:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: into.Kind + " has no protobuf: send " + mediaJSON,
		}}
	case !bytes.HasPrefix(body, []byte(magic)):
		return unrecognized(errors.New("it does not begin as protobuf of Kubernetes"), into, body)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(body[len(magic):]); err != nil {
		return unrecognized(err, into, body)
	}
	if err := checkKind(envelope.APIVersion, envelope.Kind, into); err != nil {
		return err
	}
	if err := checkRecords(envelope.Raw, into); err != nil {
		return err
	}
	if err := m.Unmarshal(envelope.Raw); err != nil {
		return unfit(err, into)
	}
	return nil
}

// checkKind compares apiVersion and kind of a body with those that the path implies. DeleteOptions may have any group.
func checkKind(apiVersion, kind string, into schema.GroupVersionKind) error {
	if kind != "" && kind != into.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s", brief(kind), brief(apiVersion), into.Kind))
	}
	if want := into.GroupVersion().String(); apiVersion != "" && apiVersion != want && into.Kind != "DeleteOptions" {
		return apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", brief(apiVersion), want))
	}
	return nil
}

// unfit returns the error for an invalid body of the right kind.
func unfit(err error, into schema.GroupVersionKind) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", into.Kind, into.Version, into.Kind, text(err)))
}

// unrecognized returns the error for a body that cannot be parsed.
func unrecognized(err error, into schema.GroupVersionKind, body []byte) error {
	if known, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return known
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %s (%s)", into.Kind, text(err), summary(body)))
}

// summary is the start of a body, as Kubernetes shows it.
func summary(body []byte) string {
	const most = 30
	start, end := body, ""
	if len(body) > most {
		start, end = body[:most], " ..."
	}
	switch printable := bytes.ContainsFunc(start, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) }); {
	case len(body) == 0:
		return "<empty>"
	case printable:
		return fmt.Sprintf("%x%s", start, end)
	}
	return printer.Escape(string(start)) + end
}

// text returns the text of an error, escaped and bounded.
func text(err error) string { return limit(printer.Escape(limit(err.Error(), maxText)), maxText) }

// brief returns a name sent by a client, escaped and bounded.
func brief(name string) string { return limit(printer.Escape(limit(name, 100)), 100) }
