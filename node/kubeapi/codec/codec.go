// Package codec reads and writes the bodies of the Kubernetes API: content negotiation, JSON, YAML, protobuf, Table and
// PartialObjectMetadata, lists and watches, errors as Status, and bodies of requests with limits and strict decoding.
//
// It must not know where objects come from, nor change them: objects of the state are shared, so it copies a struct before it sets its
// kind. All client input is bounded.
//
// Goroutines: none.
package codec

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/request"
)

// The media types that are read and written.
const (
	mediaJSON     = runtime.ContentTypeJSON
	mediaYAML     = runtime.ContentTypeYAML
	mediaProtobuf = runtime.ContentTypeProtobuf
)

// shape is the form into which objects are converted before they are encoded.
type shape int

const (
	whole shape = iota
	table
	metadata
)

// Format is how a response is written: its media type and the form of the objects. It is valid for one request.
type Format struct {
	media  string
	shape  shape
	rows   metav1.IncludeObjectPolicy
	pretty bool
	zip    bool
}

// Negotiate returns the first format that the Accept header allows and this API can write. The error is 406, or 400 for an invalid query.
// The kind is that of the objects; nil if they cannot be shown as table rows or metadata.
func Negotiate(r *http.Request, k *kinds.Kind) (*Format, error) {
	query := r.URL.Query()
	stream := request.IsTrue(query, "watch")
	for _, a := range parseAccept(r.Header) {
		f, ok := a.format(k)
		if !ok || stream && f.media == mediaYAML {
			continue
		}
		f.zip = r.Method == http.MethodGet && AcceptsGzip(r.Header)
		f.pretty = f.pretty || isPretty(r)
		if f.shape == table {
			rows, err := includeObject(query.Get("includeObject"))
			if err != nil {
				return nil, err
			}
			f.rows = rows
		}
		return f, nil
	}
	return nil, notAcceptable(k, stream)
}

// hasProtobuf reports whether objects of a kind can be encoded as protobuf: the types of k8s.io/api can, those of monopod cannot.
func hasProtobuf(k *kinds.Kind) bool {
	o, err := kinds.Scheme().New(k.GroupVersionKind)
	if err != nil {
		return false
	}
	_, ok := o.(runtime.ProtobufMarshaller)
	return ok
}

// AcceptsGzip reports whether the client accepts gzip.
func AcceptsGzip(h http.Header) bool {
	for one := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, quality, _ := strings.Cut(one, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") && !strings.HasSuffix(strings.ReplaceAll(quality, " ", ""), "q=0") {
			return true
		}
	}
	return false
}
