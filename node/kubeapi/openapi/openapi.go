// Package openapi serves the schemas of the Kubernetes API from precompressed files: /openapi/v3 and /openapi/v2.
//
// It must not parse them. The files are generated from those of Kubernetes by `make generate`.
//
// Goroutines: none.
package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
)

//go:embed data
var data embed.FS

// protobuf2 is the media type in which client-go requests version 2; client-go writes @ for the dot after v2.
const protobuf2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

// inert is the suffix of the names of documents that also describe inert kinds.
const inert = " inert"

// document is a compressed document, with the hash of its uncompressed content. Content replaces the file if it is not nil.
type document struct {
	file, hash string
	content    []byte
}

// Handler serves requests for schemas. Create it with New.
type Handler struct{ all func() map[string]document }

// New returns a handler of an API that serves these kinds. If any inert kind of a group is served, the document of the group describes all
// of them; the documents of version 2 describe all inert kinds if any is served.
func New(served kinds.Served) *Handler {
	return &Handler{sync.OnceValue(func() map[string]document { return served3(served2(map[string]document{}, served), served) })}
}

// served2 adds the documents of version 2, by their path and form.
func served2(all map[string]document, served kinds.Served) map[string]document {
	suffix := ""
	if served.AnyInert(schema.GroupVersion{}) {
		suffix = inert
	}
	for _, form := range []string{" json", " protobuf"} {
		all["/openapi/v2"+form] = documents()["/openapi/v2"+form+suffix]
	}
	return all
}

// served3 adds the index and the documents of version 3, by their path.
func served3(all map[string]document, served kinds.Served) map[string]document {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	var index struct {
		Paths map[string]entry `json:"paths"`
	}
	index.Paths = map[string]entry{}
	for _, gv := range served.GroupVersions() {
		path := "apis/" + gv.String()
		if gv.Group == "" {
			path = "api/" + gv.Version
		}
		name := "/openapi/v3/" + path
		all[name] = documents()[name]
		if served.AnyInert(gv) {
			all[name] = documents()[name+inert]
		}
		index.Paths[path] = entry{name + "?hash=" + all[name].hash}
	}
	var zipped bytes.Buffer
	z, hash := gzip.NewWriter(&zipped), sha512.New()
	if err := errors.Join(json.NewEncoder(io.MultiWriter(hash, z)).Encode(index), z.Close()); err != nil {
		panic(err) // strings, and memory
	}
	all["/openapi/v3"] = document{content: zipped.Bytes(), hash: fmt.Sprintf("%X", hash.Sum(nil))[:32]}
	return all
}

// Serve serves requests for schemas; it returns false for other paths.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request) bool {
	path := strings.TrimSuffix(r.URL.Path, "/")
	if path != "/openapi/v2" && path != "/openapi/v3" && !strings.HasPrefix(path, "/openapi/v3/") {
		return false
	}
	media := accepted(r, path == "/openapi/v2")
	name := path
	if path == "/openapi/v2" {
		name += " json"
		if media == protobuf2 {
			name = path + " protobuf"
		}
	}
	d, known := h.all()[name]
	switch {
	case !known:
		return false
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		codec.Fail(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: path}, r.Method))
	case media == "":
		codec.Fail(w, r, notAcceptable(path))
	default:
		d.serve(w, r, path, media)
	}
	return true
}

// accepted returns the first media type that the client accepts; empty if none.
func accepted(r *http.Request, version2 bool) string {
	for media := range codec.Accepts(r.Header) {
		switch {
		case media == "application/json", media == "application/*", media == "*/*":
			return "application/json"
		case version2 && media == protobuf2:
			return media
		}
	}
	return ""
}

func notAcceptable(path string) error {
	types := "application/json"
	if path == "/openapi/v2" {
		types += ", " + protobuf2
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + types,
	}}
}

// serve writes the document, or 304 if the client has it. The content of a URL with a hash never changes, so clients cache it.
func (d document) serve(w http.ResponseWriter, r *http.Request, path, media string) {
	h := w.Header()
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Cache-Control", "no-cache, private")
	if hash := r.URL.Query().Get("hash"); hash == d.hash {
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	} else if hash != "" {
		http.Redirect(w, r, path+"?hash="+d.hash, http.StatusMovedPermanently)
		return
	}
	tag := strconv.Quote(d.hash)
	h.Set("ETag", tag)
	for have := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if strings.TrimSpace(have) == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", media)
	packed, size, err := d.open()
	if err != nil {
		codec.Fail(w, r, err)
		return
	}
	defer packed.Close()
	var body io.Reader = packed
	if codec.AcceptsGzip(r.Header) {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	} else if body, err = gzip.NewReader(packed); err != nil {
		codec.Fail(w, r, err)
		return
	}
	if r.Method == http.MethodGet {
		_, _ = io.Copy(w, body) // errors mean that the client is gone
	}
}

// open returns the compressed content and its size.
func (d document) open() (io.ReadCloser, int64, error) {
	if d.content != nil {
		return io.NopCloser(bytes.NewReader(d.content)), int64(len(d.content)), nil
	}
	f, err := data.Open(d.file)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
