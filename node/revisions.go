package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/manifests"
	"monopod/node/localapi"
)

// Annotations about the revision of a pod; like the others, the API adds them to what it shows.
const (
	// AnnotationRevision is the number of the revision that runs, or is to run.
	AnnotationRevision = "monopod.dev/revision"
	// AnnotationRollback reports that another revision runs than the manifest asks for, and why; absent otherwise.
	AnnotationRollback = "monopod.dev/rollback"
	// AnnotationWritten is the hash of the manifest that is written, as AnnotationManifest has it; absent unless there is a
	// rollback.
	AnnotationWritten = "monopod.dev/written-manifest"
	// AnnotationUpdate is what a revision that is not settled waits for; absent when it waits for nothing.
	AnnotationUpdate = "monopod.dev/update"
)

// RevisionView is what is shown of the revision of a pod. The zero one shows nothing.
type RevisionView struct {
	Number   int
	Rollback string
	// Written is the hash of the present manifest while Rollback reports that another one runs.
	Written string
	Update  string
}

func (v RevisionView) annotate(set func(key, value string)) {
	number := ""
	if v.Number != 0 {
		number = strconv.Itoa(v.Number)
	}
	set(AnnotationRevision, number)
	set(AnnotationRollback, v.Rollback)
	set(AnnotationWritten, v.Written)
	set(AnnotationUpdate, v.Update)
}

// Revisions knows the revisions of pods.
type Revisions interface {
	// History returns what is kept of a pod; nil: nothing.
	History(key manifests.Key) *localapi.History
	// Rollback rolls a pod back to a revision; 0: the last one before that was Ready. Nothing is changed if admit returns an error for the
	// pod of that revision, which is shared.
	Rollback(key manifests.Key, to int, admit func(*corev1.Pod) error) (*localapi.History, error)
}

// revisionRoutes adds the history of pods, and the way back.
func (s *Server) revisionRoutes(mux *http.ServeMux) {
	if s.cfg.Revisions == nil {
		return
	}
	mux.HandleFunc("GET "+podPattern+"/history", s.history)
	mux.HandleFunc("POST "+podPattern+"/rollback", func(w http.ResponseWriter, r *http.Request) {
		key := manifests.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
		serveChange(s, w, r, func(ctx context.Context, req localapi.RollbackRequest) (*localapi.History, error) {
			if s.cfg.Revisions.History(key) == nil {
				return nil, unknownRevisions(key)
			}
			admit := func(pod *corev1.Pod) error { return s.cfg.AdmitRollback(ctx, pod) }
			if s.cfg.AdmitRollback == nil {
				admit = func(*corev1.Pod) error { return nil }
			}
			h, err := s.cfg.Revisions.Rollback(key, req.To, admit)
			if refused, ok := errors.AsType[*apierrors.StatusError](err); ok {
				return nil, refused
			}
			if err != nil {
				return nil, statusError(http.StatusConflict, err.Error())
			}
			return h, nil
		})
	})
}

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	key := manifests.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	h := s.cfg.Revisions.History(key)
	if h == nil {
		s.fail(w, unknownRevisions(key))
		return
	}
	s.json(w, h)
}

func unknownRevisions(key manifests.Key) *apierrors.StatusError {
	return statusError(http.StatusNotFound, fmt.Sprintf("no revisions of pod %s are kept; revisions exist for accepted manifests, except for pods of Jobs", key))
}

// Position prints where a revision was written.
func Position(o manifests.Origin) string { return position(o) }

// RevisionText is the number of the revision that runs, and whether it is the one that is written.
func RevisionText(annotations map[string]string) string {
	number := annotations[AnnotationRevision]
	if annotations[AnnotationRollback] != "" {
		number += " (rolled back)"
	}
	return cmp.Or(strings.TrimSpace(number), "<none>")
}
