package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/manifests"
)

// Annotations about the revision of a pod; like the others, the API adds them to what it shows.
const (
	// AnnotationRevision is the number of the revision that runs, or is to run.
	AnnotationRevision = "monopod.dev/revision"
	// AnnotationRollback says that another revision than the written one runs, and why; absent when it is the same.
	AnnotationRollback = "monopod.dev/rollback"
	// AnnotationWritten is the hash of the manifest that is written, as AnnotationManifest has it; absent unless there is a
	// rollback.
	AnnotationWritten = "monopod.dev/written-manifest"
	// AnnotationUpdate says what a revision that is not settled waits for; absent when there is nothing.
	AnnotationUpdate = "monopod.dev/update"
)

// RevisionView is what is shown of the revision of a pod. The zero one shows nothing.
type RevisionView struct {
	Number   int
	Rollback string
	// Written is the hash of the manifest that is written while Rollback says that another one runs.
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

// History is what is kept of a pod's revisions.
type History struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Wanted is the number of the revision that is written, Active that of the one that runs or is to run.
	Wanted int `json:"wanted"`
	Active int `json:"active"`
	// Rollback and Update are the annotations' texts.
	Rollback string `json:"rollback,omitempty"`
	Update   string `json:"update,omitempty"`
	// Revisions are oldest first.
	Revisions []Revision `json:"revisions"`
	// Warning is about a rollback that has succeeded all the same.
	Warning string `json:"warning,omitempty"`
}

// Revision is one accepted content of a manifest.
type Revision struct {
	Number int `json:"number"`
	// Outcome is Progressing, Ready, Failed, Reverted or Superseded.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	// Source is where it was written, as "file:line" or URL.
	Source   string    `json:"source"`
	Accepted time.Time `json:"accepted"`
	// Settled is when the outcome was known.
	Settled time.Time `json:"settled,omitzero"`
	// Images are the digests of the images it ran with, by container; of image volumes by volume/NAME.
	Images map[string]string `json:"images,omitempty"`
	// Manifest is the pod with its defaults.
	Manifest json.RawMessage `json:"manifest"`
}

// Revision returns one by its number, nil when it is not kept.
func (h *History) Revision(number int) *Revision {
	for i := range h.Revisions {
		if h.Revisions[i].Number == number {
			return &h.Revisions[i]
		}
	}
	return nil
}

// Revisions knows the revisions of pods.
type Revisions interface {
	// History returns what is kept of a pod; nil: nothing.
	History(key manifests.Key) *History
	// Rollback takes a pod to a revision, 0: the last one before that was Ready. An error says why not.
	Rollback(key manifests.Key, to int) (*History, error)
}

// RollbackRequest is the body of POST /v1/pods/NAMESPACE/NAME/rollback.
type RollbackRequest struct {
	// To is the number of a revision; 0: the last one before the active one that was Ready.
	To int `json:"to,omitempty"`
}

// revisionRoutes adds the history of pods, and the way back.
func (s *Server) revisionRoutes(mux *http.ServeMux) {
	if s.cfg.Revisions == nil {
		return
	}
	mux.HandleFunc("GET /v1/pods/{namespace}/{name}/revisions", s.history)
	mux.HandleFunc("POST /v1/pods/{namespace}/{name}/rollback", func(w http.ResponseWriter, r *http.Request) {
		key := manifests.Key{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
		serveChange(s, w, r, func(_ context.Context, req RollbackRequest) (*History, error) {
			if s.cfg.Revisions.History(key) == nil {
				return nil, unknownRevisions(key)
			}
			h, err := s.cfg.Revisions.Rollback(key, req.To)
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
	return statusError(http.StatusNotFound, fmt.Sprintf("no revisions of pod %s are kept; a pod has some once its manifest was accepted, unless it is a Job's", key))
}

// History returns the revisions of a pod.
func (c *Client) History(ctx context.Context, namespace, name string) (*History, error) {
	h := &History{}
	return h, c.getJSON(ctx, podPath(namespace, name)+"/revisions", h)
}

// Rollback takes a pod to a revision; see RollbackRequest.
func (c *Client) Rollback(ctx context.Context, namespace, name string, to int) (*History, error) {
	h := &History{}
	return h, c.send(ctx, http.MethodPost, podPath(namespace, name)+"/rollback", RollbackRequest{To: to}, h)
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
