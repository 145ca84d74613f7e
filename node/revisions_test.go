package node

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/node/localapi"
)

// archive is Revisions of one pod.
type archive struct {
	history *localapi.History
	asked   []int
	err     error
	// pod is that of all revisions.
	pod *corev1.Pod
}

func (a *archive) History(key manifests.Key) *localapi.History {
	if key != (manifests.Key{Namespace: "default", Name: "web"}) {
		return nil
	}
	return a.history
}

func (a *archive) Rollback(_ manifests.Key, to int, admit func(*corev1.Pod) error) (*localapi.History, error) {
	if err := admit(a.pod); err != nil {
		return nil, err
	}
	a.asked = append(a.asked, to)
	return a.history, a.err
}

func TestTheHistoryOfAPodIsServed(t *testing.T) {
	want := &localapi.History{Namespace: "default", Name: "web", Wanted: 2, Active: 1, Rollback: "why", Revisions: []localapi.Revision{
		{Number: 1, Outcome: "Ready", Source: "/m/web.yaml:1", Accepted: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Images: map[string]string{"c": "sha256:1"}, Manifest: []byte(`{"kind":"Pod"}`)},
		{Number: 2, Outcome: "Failed", Reason: "it crashes", Manifest: []byte(`{}`)},
	}}
	a := &archive{history: want}
	c, _ := serve(t, &machine{revisions: a})
	got, err := c.History(t.Context(), "default", "web")
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v: %s", err, cmp.Diff(want, got))
	}
	if got.Revision(2).Outcome != "Failed" || got.Revision(3) != nil {
		t.Error("a revision is not found by its number")
	}
	if _, err := c.History(t.Context(), "default", "other"); code(err) != http.StatusNotFound || !strings.Contains(err.Error(), "no revisions of pod default/other are kept") {
		t.Errorf("unknown pod: %v", err)
	}
	if got, err := c.Rollback(t.Context(), "default", "web", 1); err != nil || !cmp.Equal(got, want) || !cmp.Equal(a.asked, []int{1}) {
		t.Errorf("rollback: %v, %v, %v", got, err, a.asked)
	}
	a.err = errors.New("revision 7 is not kept")
	if _, err := c.Rollback(t.Context(), "default", "web", 7); code(err) != http.StatusConflict || err.Error() != "revision 7 is not kept" {
		t.Errorf("refused: %v", err)
	}
	if _, err := c.Rollback(t.Context(), "default", "other", 0); code(err) != http.StatusNotFound || len(a.asked) != 2 {
		t.Errorf("unknown pod: %v, %v", err, a.asked)
	}
}

func TestTheRevisionOfAPodIsShown(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Annotations: map[string]string{AnnotationRollback: "of the manifest"}}}
	m := &machine{views: []PodView{{Pod: pod, Revision: RevisionView{Number: 3, Update: "waits"}}}}
	c, _ := serve(t, m)
	p, err := c.Pod(t.Context(), "default", "web")
	if err != nil || p.Annotations[AnnotationRevision] != "3" || p.Annotations[AnnotationUpdate] != "waits" || p.Annotations[AnnotationRollback] != "" {
		t.Errorf("%v: %v", err, p.Annotations)
	}
	if got := RevisionText(p.Annotations); got != "3" {
		t.Errorf("in short: %s", got)
	}
	p.Annotations[AnnotationRollback] = "because"
	if got := RevisionText(p.Annotations); got != "3 (rolled back)" {
		t.Errorf("in short: %s", got)
	}
	if got := RevisionText(nil); got != "<none>" {
		t.Errorf("in short: %s", got)
	}
}

// TestARollbackIsAdmitted: an old revision may be one that the user could not write.
func TestARollbackIsAdmitted(t *testing.T) {
	a := &archive{history: &localapi.History{}, pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}
	s := NewServer(Config{Revisions: a, AdmitRollback: func(_ context.Context, pod *corev1.Pod) error {
		return apierrors.NewForbidden(pods(), pod.Name, errors.New("no"))
	}})
	mux := http.NewServeMux()
	s.revisionRoutes(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, localapi.PodReport("default", "web", "rollback"), strings.NewReader(`{"to":1}`)))
	if w.Code != http.StatusForbidden || len(a.asked) != 0 || !strings.Contains(w.Body.String(), "web") {
		t.Errorf("%d %s, rolled back to %v", w.Code, w.Body, a.asked)
	}
}
