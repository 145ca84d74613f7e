package kubewrite

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/daemon/expiry"
	"monopod/node/localapi"
	"monopod/runner/workload"
	"monopod/runner/workload/saved"
)

const jobs = "/apis/batch/v1/namespaces/default/jobs"

func object(spec map[string]any) map[string]any {
	template := map[string]any{"spec": map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "example.com/app:1"}}}}
	spec["template"] = template
	return map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "j"}, "spec": spec}
}

// ended is a daemon whose Jobs run at once: all pods succeed.
type ended struct {
	*daemon
	x    *workload.Expander
	pods []workload.Observed
	last workload.Result
}

func newEnded(t *testing.T, d *daemon) *ended {
	t.Helper()
	x, err := workload.NewExpander(saved.NewStore(filepath.Join(t.TempDir(), "workloads.json")), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return &ended{daemon: d, x: x}
}

// expand does it until all is done.
func (e *ended) expand(now time.Time) {
	for range 5 {
		all, _ := e.state.Desired()
		e.last = e.x.Expand(now, all, e.pods)
		e.pods = nil
		for _, p := range e.last.Pods {
			status := p.Object.DeepCopy()
			status.UID, status.Status.Phase = types.UID("uid of "+p.Object.Name), corev1.PodSucceeded
			e.pods = append(e.pods, workload.Observed{Status: status, Recorded: p})
		}
	}
	e.state.Workloads.SetExpanded(e.x.State(), nil)
}

func ownerOf(o *unstructured.Unstructured) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}}
}

func complete(o *unstructured.Unstructured) bool {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		if m, _ := c.(map[string]any); m["type"] == "Complete" && m["status"] == "True" {
			return true
		}
	}
	return false
}

// TestWritesToAJobKeepWhatItHasDone: one of the API, and one of monopod apply, which clients write with defaults. More of its pods have ended
// than are kept.
func TestWritesToAJobKeepWhatItHasDone(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		d := newDaemon(t, t.TempDir(), "")
		d.open()
		c, e := newClient(t, d), newEnded(t, d)
		o := object(map[string]any{"completions": 8, "parallelism": 1})
		if applied {
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			request := localapi.ApplyRequest{Files: []localapi.ManifestFile{{Name: "j.yaml", Content: text}}}
			if _, err := d.cfg.Applier.Apply(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		} else {
			c.do(http.StatusCreated, "POST", jobs, o)
		}
		now := time.Now()
		e.expand(now)
		e.expand(now)
		before := c.do(http.StatusOK, "GET", jobs+"/j", nil)
		if !complete(before) {
			t.Fatalf("%v", before)
		}
		for _, patch := range []map[string]any{
			{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}},
			{"spec": map[string]any{"suspend": true}},
			{"spec": map[string]any{"parallelism": 3, "suspend": false, "ttlSecondsAfterFinished": 1000}},
		} {
			c.do(http.StatusOK, "PATCH", jobs+"/j", patch)
			for range 2 {
				after := c.do(http.StatusOK, "GET", jobs+"/j", nil)
				if !complete(after) || after.GetUID() != before.GetUID() {
					t.Errorf("applied %t, after %v: %v", applied, patch, after)
				}
				e.expand(now)
			}
			if len(e.last.Pods) != 5 {
				t.Errorf("applied %t, after %v: %d pods", applied, patch, len(e.last.Pods))
			}
		}
		stored, err := d.store.Get(id("Job", "j"))
		if err != nil || strings.Contains(string(stored), "job-name") || strings.Contains(string(stored), `"selector"`) {
			t.Errorf("stored is %s, %v", stored, err)
		}
	}
}

func TestWhatAClientHasChosenOfASelectorStays(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), "")
	d.open()
	c := newClient(t, d)
	o := object(map[string]any{"manualSelector": true, "selector": map[string]any{"matchLabels": map[string]any{"job-name": "j"}}})
	_ = unstructured.SetNestedStringMap(o, map[string]string{"job-name": "j"}, "spec", "template", "metadata", "labels")
	c.do(http.StatusCreated, "POST", jobs, o)
	c.do(http.StatusOK, "PATCH", jobs+"/j", map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
	got, _ := d.desired("Job", "j")
	job, ok := got.(*batchv1.Job)
	if !ok || job.Spec.Selector == nil || job.Spec.Selector.MatchLabels["job-name"] != "j" || job.Spec.Template.Labels["job-name"] != "j" {
		t.Errorf("%+v", got)
	}
}

// TestAnExpiredJobIsDeletedWithWhatBelongsToIt: finalizers hold it.
func TestAnExpiredJobIsDeletedWithWhatBelongsToIt(t *testing.T) {
	t.Parallel()
	for _, finalizers := range [][]any{nil, {"example.com/f"}} {
		d := newDaemon(t, t.TempDir(), "")
		d.open()
		c, e := newClient(t, d), newEnded(t, d)
		o := object(map[string]any{"ttlSecondsAfterFinished": 10})
		o["metadata"].(map[string]any)["finalizers"] = finalizers
		made := c.do(http.StatusCreated, "POST", jobs, o)
		owned := configMapIn("default", "owned")
		owned.OwnerReferences = ownerOf(made)
		c.do(http.StatusCreated, "POST", "/api/v1/namespaces/default/configmaps", owned)
		now := time.Now()
		e.expand(now)
		controller := func(expired []workload.Expired) {
			ctx, cancel := context.WithCancel(t.Context())
			changed, calls := make(chan struct{}, 1), 0
			changed <- struct{}{}
			err := (&expiry.Controller{API: c.api, Log: slog.New(slog.DiscardHandler), Expired: func() ([]workload.Expired, <-chan struct{}) {
				if calls++; calls == 2 {
					cancel()
				}
				return expired, changed
			}}).Run(ctx)
			if err != nil {
				t.Error(err)
			}
		}
		controller(e.last.Expired)
		c.do(http.StatusOK, "GET", jobs+"/j", nil)
		e.expand(now.Add(10 * time.Second))
		if len(e.last.Expired) != 1 || len(e.last.Pods) != 0 {
			t.Fatalf("%+v", e.last)
		}
		controller(e.last.Expired)
		if finalizers != nil {
			if held := c.do(http.StatusOK, "GET", jobs+"/j", nil); held.GetDeletionTimestamp() == nil {
				t.Errorf("%v", held)
			}
			controller(e.last.Expired)
			c.do(http.StatusOK, "PATCH", jobs+"/j", map[string]any{"metadata": map[string]any{"finalizers": nil}})
		}
		c.do(http.StatusNotFound, "GET", jobs+"/j", nil)
		c.do(http.StatusNotFound, "GET", "/api/v1/namespaces/default/configmaps/owned", nil)
		again := c.do(http.StatusCreated, "POST", jobs, o)
		controller(e.last.Expired)
		if got := c.do(http.StatusOK, "GET", jobs+"/j", nil); got.GetUID() != again.GetUID() || complete(got) {
			t.Errorf("%v", got)
		}
	}
}
