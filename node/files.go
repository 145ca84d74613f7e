package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/internal/tree"
	"monopod/manifests"
	"monopod/node/localapi"
	podstream "monopod/node/stream"
)

// Files are those of containers that run.
type Files interface {
	// Root opens the root directory of a container as its process sees it, and returns the user that a command would have there.
	Root(ctx context.Context, key manifests.Key, id string) (*os.File, tree.User, error)
}

// fileRoutes adds the files of containers: a tree comes out as a stream of tar, and goes in as one.
func (s *Server) fileRoutes(mux *http.ServeMux) {
	if s.cfg.Files == nil {
		return
	}
	const path = podPattern + "/files"
	f := &fileServer{responder: s.responder, pods: &s.podReader, files: s.cfg.Files}
	mux.HandleFunc("GET "+path, f.read)
	mux.HandleFunc("PUT "+path, f.write)
}

// fileServer reads and writes the files of containers.
type fileServer struct {
	responder
	pods  *podReader
	files Files
}

// place is what a request for files is about.
type place struct {
	container, path string
	root            *os.File
	user            tree.User
}

// place finds it. Who may do it is decided before: all can be read there.
func (f *fileServer) place(r *http.Request) (*place, error) {
	p := &place{container: r.FormValue("container"), path: r.FormValue("path")}
	if p.path == "" || strings.ContainsRune(p.path, 0) {
		return nil, statusError(http.StatusBadRequest, "which path?")
	}
	pod, err := f.pods.FindPod(r.Context(), r.PathValue("namespace"), r.PathValue("name"))
	switch {
	case err != nil:
		return nil, statusError(http.StatusServiceUnavailable, err.Error())
	case pod == nil:
		return nil, apierrors.NewNotFound(pods(), r.PathValue("name"))
	}
	key := manifests.Key{Namespace: pod.Namespace, Name: pod.Name}
	if p.container == "" {
		p.container = pod.Spec.Containers[0].Name
	}
	if manifests.FindContainer(&pod.Spec, p.container) == nil {
		return nil, statusError(http.StatusNotFound, fmt.Sprintf("pod %s has no container %q; it has %s", key, p.container, strings.Join(ContainerNames(pod), ", ")))
	}
	id := podstream.RunningID(pod, p.container)
	if id == "" {
		return nil, statusError(http.StatusConflict, fmt.Sprintf("container %s of pod %s is not running", p.container, key))
	}
	if p.root, p.user, err = f.files.Root(r.Context(), key, id); err != nil {
		return nil, statusError(http.StatusConflict, fmt.Sprintf("container %s of pod %s: %s", p.container, key, err))
	}
	return p, nil
}

// explain returns the answer for an error of a copy.
func (p *place) explain(err error) *apierrors.StatusError {
	if e, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return e
	}
	code, hint := int32(http.StatusInternalServerError), ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		code = http.StatusNotFound
	case errors.Is(err, unix.EROFS):
		code, hint = http.StatusConflict, fmt.Sprintf(" in container %s: write to a volume, an emptyDir for example, that is not read-only", p.container)
	case errors.Is(err, fs.ErrPermission):
		code, hint = http.StatusForbidden, fmt.Sprintf(" in container %s for its user (%d on this machine)", p.container, p.user.UID)
	case errors.Is(err, tree.ErrArchive), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
		code = http.StatusBadRequest
	}
	return statusError(code, err.Error()+hint)
}

// read sends the tree at a path. Errors and warnings that come late are sent as trailers.
func (f *fileServer) read(w http.ResponseWriter, r *http.Request) {
	p, err := f.place(r)
	if err != nil {
		f.fail(w, p.explain(err))
		return
	}
	defer p.root.Close()
	from, err := tree.Open(p.root, p.path)
	if err != nil {
		f.fail(w, p.explain(err))
		return
	}
	defer from.Close()
	h := w.Header()
	h.Set("Content-Type", localapi.MediaTar)
	h.Set("Trailer", localapi.TrailerError+", "+localapi.TrailerWarning)
	if err := tree.Pack(r.Context(), w, from, tree.Name(p.path), func(text string) { h.Add(localapi.TrailerWarning, oneLine(text)) }); err != nil {
		h.Set(localapi.TrailerError, oneLine(err.Error()))
	}
}

// oneLine makes a text fit into a header.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
}

// write takes a stream. With name it is a tree of that name, which goes into the directory at the path or becomes what the
// path names; without, it goes into the directory as it is.
func (f *fileServer) write(w http.ResponseWriter, r *http.Request) {
	p, err := f.place(r)
	if err != nil {
		f.fail(w, p.explain(err))
		return
	}
	defer p.root.Close()
	// A client with much to send learns at once that the request has failed.
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
		f.log.Debug("answer before the end of a request", "err", err)
	}
	var written localapi.Written
	name := r.FormValue("name")
	err = p.user.Do(func() error {
		to, err := tree.FindTarget(p.root, p.path, name)
		if err != nil {
			return err
		}
		defer to.Dir.Close()
		return tree.Unpack(r.Context(), r.Body, to.Dir, tree.Options{
			From: name, To: to.Name, Warn: func(text string) { written.Warnings = append(written.Warnings, text) },
		})
	})
	if err == nil {
		f.json(w, written)
		return
	}
	f.fail(w, p.explain(err))
	if http.NewResponseController(w).Flush() == nil {
		_, _ = io.Copy(io.Discard, r.Body) // until the client has read it and goes
	}
}
