package streams

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"monopod/node/kubeapi/codec"
)

// log serves the log of a container, as text or over a WebSocket.
func (h *Handler) log(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	q := r.URL.Query()
	to, err := logOptions(pod.Name, q)
	if err != nil {
		return err
	}
	container, err := containerOf(pod, q.Get("container"))
	if err != nil {
		return err
	}
	path := "/containerLogs/" + pod.Namespace + "/" + pod.Name + "/" + container
	if !wsstream.IsWebSocketRequest(r) {
		h.forward(w, r, path, to)
		return nil
	}
	if err := h.logSocket(w, r, path, to); err != nil {
		codec.Fail(w, r, err)
	}
	return nil
}

// logOptions validates log options, and returns them with the kubelet's names. Malformed numbers are 400, invalid ones 422.
func logOptions(name string, q url.Values) (url.Values, error) {
	to := url.Values{}
	for _, name := range []string{"follow", "previous", "timestamps"} {
		if boolean(q, name) {
			to.Set(name, "true")
		}
	}
	var errs field.ErrorList
	for _, number := range []struct {
		name  string
		least int64
		must  string
	}{
		{"tailLines", 0, "must be greater than or equal to 0"}, {"limitBytes", 1, "must be greater than 0"}, {"sinceSeconds", 1, "must be greater than 0"},
	} {
		if !q.Has(number.name) {
			continue
		}
		n, err := strconv.ParseInt(q.Get(number.name), 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: %q is not a number", number.name, q.Get(number.name)))
		}
		if n < number.least {
			errs = append(errs, field.Invalid(field.NewPath(number.name), n, number.must))
		}
		to.Set(number.name, strconv.FormatInt(n, 10))
	}
	if text := q.Get("sinceTime"); text != "" {
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("sinceTime: %q is not an RFC 3339 time", text))
		}
		if q.Has("sinceSeconds") {
			errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
		}
		to.Set("sinceTime", since.Format(time.RFC3339Nano))
	}
	errs = append(errs, streamOption(q, to)...)
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "PodLogOptions"}, name, errs)
	}
	return to, nil
}

// streamOption translates the option that selects stdout or stderr.
func streamOption(q, to url.Values) (errs field.ErrorList) {
	known := []string{corev1.LogStreamAll, corev1.LogStreamStderr, corev1.LogStreamStdout}
	stream := q.Get("stream")
	switch {
	case !q.Has("stream") || stream == corev1.LogStreamAll:
		return nil
	case !slices.Contains(known, stream):
		errs = append(errs, field.NotSupported(field.NewPath("stream"), stream, known))
	case q.Has("tailLines"):
		errs = append(errs, field.Forbidden(field.NewPath(""), "`tailLines` and specific `stream` are mutually exclusive for now"))
	}
	to.Set("stream", stream)
	return errs
}
