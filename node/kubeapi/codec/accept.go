package codec

import (
	"fmt"
	"iter"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/node/kubeapi/kinds"
)

// maxAccept is how many elements of an Accept header are read. kubectl sends 3.
const maxAccept = 32

// accepted is one element of an Accept header.
type accepted struct {
	media   string
	params  map[string]string
	quality float64
}

// Accepts yields the media types of the Accept header with their parameters, the preferred first; */* without a header.
func Accepts(h http.Header) iter.Seq2[string, map[string]string] {
	return func(yield func(string, map[string]string) bool) {
		for _, a := range parseAccept(h) {
			if !yield(a.media, a.params) {
				return
			}
		}
	}
}

// parseAccept returns the elements of the Accept header, the preferred first. Unparsable elements are omitted.
func parseAccept(h http.Header) []accepted {
	header := strings.Join(h.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return []accepted{{media: "*/*", quality: 1}}
	}
	var all []accepted
	for one := range strings.SplitSeq(header, ",") {
		if len(all) == maxAccept {
			break
		}
		media, params, err := mime.ParseMediaType(strings.ReplaceAll(one, "@", ".")) // the protobuf of OpenAPI has one in its name
		if err != nil {
			continue
		}
		a := accepted{media: media, params: params, quality: 1}
		if q, ok := params["q"]; ok {
			if a.quality, err = strconv.ParseFloat(q, 64); err != nil || !(a.quality > 0) {
				continue
			}
		}
		all = append(all, a)
	}
	slices.SortStableFunc(all, func(a, b accepted) int {
		switch {
		case a.quality > b.quality:
			return -1
		case a.quality < b.quality:
			return 1
		}
		return 0
	})
	return all
}

// format returns the format of an element; false if this API cannot write it.
func (a accepted) format(k *kinds.Kind) (*Format, bool) {
	f := &Format{media: mediaOf(a.media), pretty: a.params["pretty"] == "1"}
	if s := a.params["stream"]; f.media == "" || s != "" && (s != "watch" || f.media == mediaYAML) || a.params["sv"] != "" {
		return nil, false
	}
	if as := a.params["as"]; as != "" || a.params["g"] != "" || a.params["v"] != "" {
		if k == nil || a.params["g"] != metav1.GroupName || a.params["v"] != "v1" {
			return nil, false
		}
		switch as {
		case "Table":
			f.shape = table
		case "PartialObjectMetadata", "PartialObjectMetadataList":
			f.shape = metadata
		default:
			return nil, false
		}
	}
	if f.media == mediaProtobuf && (f.shape == table || f.shape == whole && k != nil && !hasProtobuf(k)) {
		return nil, false
	}
	return f, true
}

// mediaOf returns the media type that a range selects; empty if none.
func mediaOf(name string) string {
	switch name {
	case "*/*", "application/*", mediaJSON:
		return mediaJSON
	case mediaYAML, mediaProtobuf:
		return name
	}
	return ""
}

func includeObject(value string) (metav1.IncludeObjectPolicy, error) {
	switch p := metav1.IncludeObjectPolicy(value); p {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return p, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: includeObject: unsupported value %.40q: use None, Metadata or Object", value))
}

func notAcceptable(k *kinds.Kind, stream bool) error {
	types := []string{mediaJSON}
	if !stream {
		types = append(types, mediaYAML)
	}
	if k == nil || hasProtobuf(k) {
		types = append(types, mediaProtobuf)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + strings.Join(types, ", "), Details: &metav1.StatusDetails{},
	}}
}

// isPretty reports whether JSON is indented: on request, and for clients whose output people read.
func isPretty(r *http.Request) bool {
	if p := r.URL.Query().Get("pretty"); p != "" {
		pretty, _ := strconv.ParseBool(p)
		return pretty
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}
