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

	"monopod/node/localapi"
)

// Applier stores documents that clients send. An error of its methods that is no *apierrors.StatusError is an internal
// one; in any case nothing has changed.
type Applier interface {
	Apply(ctx context.Context, r localapi.ApplyRequest) (localapi.ApplyResult, error)
	Delete(ctx context.Context, r localapi.DeleteRequest) (localapi.ApplyResult, error)
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
	mux.HandleFunc("PUT "+localapi.Self("applied"), func(w http.ResponseWriter, r *http.Request) { serveLarge(s, w, r, s.cfg.Applier.Apply) })
	mux.HandleFunc("DELETE "+localapi.Self("applied"), func(w http.ResponseWriter, r *http.Request) { serveLarge(s, w, r, s.cfg.Applier.Delete) })
}

// serveChange decodes a small request, carries it out and answers.
func serveChange[R, A any](s *Server, w http.ResponseWriter, r *http.Request, do func(context.Context, R) (A, error)) {
	var req R
	err := s.intake.Small(w, r, &req)
	carryOut(s, w, r, req, err, do)
}

// serveLarge is serveChange for requests with files.
func serveLarge[R, A any](s *Server, w http.ResponseWriter, r *http.Request, do func(context.Context, R) (A, error)) {
	var req R
	end, err := s.intake.Large(w, r, &req)
	defer end()
	carryOut(s, w, r, req, err, do)
}

// carryOut carries out a request, unless it could not be read, and answers.
func carryOut[R, A any](s *Server, w http.ResponseWriter, r *http.Request, req R, err error, do func(context.Context, R) (A, error)) {
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

// guarded rejects requests that can change something from clients that may not.
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

// withPeer records the process at the other end of a connection. Only root can open the socket by default; this matters where an
// administrator has opened it to others for reading.
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

// MayChange reports whether the client of a request on the socket is root, or the user of the daemon.
func MayChange(ctx context.Context) bool { return mayChange(ctx) == nil }

// mayChange returns why a client may not change anything: it is neither root nor the user of the daemon, or unknown.
func mayChange(ctx context.Context) error {
	uid, known := ctx.Value(peerKey{}).(uint32)
	switch {
	case !known:
		return errors.New("only root may change pods; your user is unknown")
	case uid != 0 && int(uid) != os.Geteuid():
		return fmt.Errorf("only root may change pods; you are user %d", uid)
	}
	return nil
}
