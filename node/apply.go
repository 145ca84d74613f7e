package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManifestFile is a file of documents as a client has read it.
type ManifestFile struct {
	// Name is what messages call it.
	Name    string `json:"name"`
	Content []byte `json:"content"`
}

// ObjectRef names an object; the namespace of cluster-wide kinds is empty.
type ObjectRef struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns "kind/name" as kubectl does, with the namespace unless it is default.
func (r ObjectRef) String() string {
	name := strings.ToLower(r.Kind) + "/" + r.Name
	if r.Namespace != "" && r.Namespace != metav1.NamespaceDefault {
		name += " in " + r.Namespace
	}
	return name
}

// ApplyRequest is the body of PUT /v1/applied: all files become one change, or none does.
type ApplyRequest struct {
	Files []ManifestFile `json:"files"`
	// DryRun: say what would be done, and do nothing.
	DryRun bool `json:"dryRun,omitempty"`
}

// DeleteRequest is the body of DELETE /v1/applied. What Files and Objects name is removed as one change.
type DeleteRequest struct {
	Files   []ManifestFile `json:"files,omitempty"`
	Objects []ObjectRef    `json:"objects,omitempty"`
	DryRun  bool           `json:"dryRun,omitempty"`
}

// Verdict is what became of an object.
type Verdict string

// Verdicts.
const (
	Created    Verdict = "created"
	Configured Verdict = "configured"
	Unchanged  Verdict = "unchanged"
	Deleted    Verdict = "deleted"
	// NotFound: it is not among what was applied, nor written elsewhere.
	NotFound Verdict = "not found"
)

// AppliedObject is the answer about one object.
type AppliedObject struct {
	ObjectRef
	Verdict Verdict `json:"verdict"`
	// Pods are those to which what was applied comes: a pod itself, or those of a workload whose pods stay. Of what was
	// deleted they are those that go.
	Pods []AppliedPod `json:"pods,omitempty"`
	// Warning tells that it has no effect now, and why.
	Warning string `json:"warning,omitempty"`
}

// AppliedPod is a pod to come, or to go.
type AppliedPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Manifest is what AnnotationManifest of the pod will be; empty for one that goes.
	Manifest string `json:"manifest,omitempty"`
	// Rollback says that an earlier revision runs instead of what was applied, unchanged, and why.
	Rollback string `json:"rollback,omitempty"`
}

// ApplyResult is the answer to both requests.
type ApplyResult struct {
	Objects []AppliedObject `json:"objects"`
	// Notes tell of documents that mean nothing here, and of a change that is stored and will be finished later.
	Notes []string `json:"notes,omitempty"`
}

// Applier stores documents that clients send. An error of its methods that is no *apierrors.StatusError is an internal
// one; in any case nothing has changed.
type Applier interface {
	Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error)
	Delete(ctx context.Context, r DeleteRequest) (ApplyResult, error)
}

// Refusal is the answer to a request that cannot be fulfilled: one line for each reason. A line end within a reason is escaped, so
// that no document can add a reason.
func Refusal(code int, reason metav1.StatusReason, lines []string) *apierrors.StatusError {
	lines = slices.Clone(lines)
	for i, l := range lines {
		lines[i] = strings.ReplaceAll(l, "\n", `\n`)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: strings.Join(lines, "\n"),
	}}
}

// applyRoutes adds what changes something.
func (s *Server) applyRoutes(mux *http.ServeMux) {
	if s.cfg.Applier == nil {
		return
	}
	mux.HandleFunc("PUT /v1/applied", func(w http.ResponseWriter, r *http.Request) { serveChange(s, w, r, s.cfg.Applier.Apply) })
	mux.HandleFunc("DELETE /v1/applied", func(w http.ResponseWriter, r *http.Request) { serveChange(s, w, r, s.cfg.Applier.Delete) })
}

// serveChange decodes a request, carries it out and answers.
func serveChange[R, A any](s *Server, w http.ResponseWriter, r *http.Request, do func(context.Context, R) (A, error)) {
	var req R
	end, err := s.decode(w, r, &req)
	defer end()
	if err != nil {
		s.fail(w, statusError(http.StatusBadRequest, "the request cannot be read: "+err.Error()))
		return
	}
	result, err := do(r.Context(), req)
	switch refused, isStatus := errors.AsType[*apierrors.StatusError](err); {
	case isStatus:
		s.fail(w, refused)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		s.fail(w, statusError(http.StatusInsufficientStorage, err.Error()))
	case err != nil:
		s.fail(w, apierrors.NewInternalError(err))
	default:
		s.json(w, result)
	}
}

// guarded lets requests that can change something through only from those who may.
func (s *Server) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := mayChange(r.Context()); err != nil {
				s.fail(w, statusError(http.StatusForbidden, err.Error()))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// peerKey is where the context of a connection has the user at its other end.
type peerKey struct{}

// withPeer notes who is at the other end of a connection. The socket belongs to root alone; this counts where somebody
// has opened it for others to look.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	conn, ok := c.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return ctx
	}
	var uid uint32
	var credErr error
	err = raw.Control(func(fd uintptr) { uid, credErr = peerUID(int(fd)) })
	if err != nil || credErr != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// mayChange says why a client may not change anything: it is neither root nor the user of the daemon, or not known.
func mayChange(ctx context.Context) error {
	uid, known := ctx.Value(peerKey{}).(uint32)
	switch {
	case !known:
		return errors.New("only root may change what runs; it is not known who you are")
	case uid != 0 && int(uid) != os.Geteuid():
		return fmt.Errorf("only root may change what runs; you are user %d", uid)
	}
	return nil
}
