package kubewrite

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monopod/internal/model"
	"monopod/node/kubeapi"
	"monopod/runner/runtimetest"
	"monopod/runner/workload/saved"
)

func TestWhatMonopodMakesIsMadeAgain(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, t.TempDir(), staticManifests)
	d.open()
	c := newClient(t, d)
	const maps, accounts = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/serviceaccounts"
	for _, path := range []string{maps + "/kube-root-ca.crt", accounts + "/default"} {
		for range 2 {
			before := c.do(http.StatusOK, "GET", path, nil)
			c.do(http.StatusOK, "DELETE", path, nil)
			if after := c.do(http.StatusOK, "GET", path, nil); after.GetUID() == before.GetUID() {
				t.Errorf("%s: clients wait for its end forever", path)
			}
		}
	}
	no := c.do(http.StatusForbidden, "PATCH", maps+"/kube-root-ca.crt", map[string]any{"data": map[string]any{"a": "2"}})
	if text, _ := no.Object["message"].(string); !strings.Contains(text, "cannot be changed") {
		t.Errorf("%v", text)
	}
	label := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}
	c.do(http.StatusOK, "PATCH", accounts+"/default", label) // a client may have an account of its own
	own := c.do(http.StatusOK, "GET", accounts+"/default", nil)
	c.do(http.StatusOK, "DELETE", accounts+"/default", nil)
	if now := c.do(http.StatusOK, "GET", accounts+"/default", nil); now.GetUID() == own.GetUID() || len(now.GetLabels()) > 0 {
		t.Errorf("%v", now)
	}
	c.do(http.StatusOK, "DELETE", maps, nil)
	c.do(http.StatusOK, "GET", maps+"/kube-root-ca.crt", nil)
	c.do(http.StatusCreated, "POST", "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}})
	c.do(http.StatusOK, "DELETE", "/api/v1/namespaces/team", nil)
	c.do(http.StatusNotFound, "GET", "/api/v1/namespaces/team", nil)
}

// TestADeletedNamespaceIsTerminating until its pods have ended, and only then can be made again.
func TestADeletedNamespaceIsTerminating(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		c := newClient(t, d)
		team := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}
		made := c.do(http.StatusCreated, "POST", "/api/v1/namespaces", team)
		container := map[string]any{"name": "c", "image": "busybox:1", "command": []any{"sh", "-c", runtimetest.ScriptStubborn}}
		c.do(http.StatusCreated, "POST", "/api/v1/namespaces/team/pods", map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{"containers": []any{container}},
		})
		time.Sleep(10 * time.Second)
		for range 2 {
			c.do(http.StatusOK, "DELETE", "/api/v1/namespaces/team", nil)
			now := c.do(http.StatusOK, "GET", "/api/v1/namespaces/team", nil)
			if now.GetUID() != made.GetUID() || now.GetDeletionTimestamp() == nil {
				t.Errorf("%v", now)
			}
			c.do(http.StatusConflict, "POST", "/api/v1/namespaces", team)
			c.do(http.StatusForbidden, "POST", "/api/v1/namespaces/team/configmaps", configMapIn("team", "x"))
		}
		time.Sleep(time.Minute)
		c.do(http.StatusNotFound, "GET", "/api/v1/namespaces/team", nil)
		if again := c.do(http.StatusCreated, "POST", "/api/v1/namespaces", team); again.GetUID() == made.GetUID() {
			t.Error("another Namespace has the same uid")
		}
	})
}

// TestADeletedJobOfACronJobIsDropped before the answer, or the client is told to try again.
func TestADeletedJobOfACronJobIsDropped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, _ := running(t, dir, model.Desired{})
		run := saved.RunID{Namespace: "default", CronJob: "tick", Name: "tick-1"}
		progress := func(runs ...saved.Run) saved.State {
			return saved.State{Crons: map[string]*saved.CronJob{"CronJob default/tick": {Runs: runs}}}
		}
		d.state.Workloads.SetExpanded(progress(saved.Run{Name: run.Name}), nil)
		d.cfg.Shown = made{"CronJob tick", true}
		job := ref("Job", "default", "tick-1")
		if got := d.Definition(job); got.Place != "CronJob tick" || !got.Derived || !got.Deletable || got.Applied {
			t.Errorf("%+v", got)
		}
		removal := kubeapi.Change{Remove: []kubeapi.Removal{{Ref: job, UID: "uid"}}}
		if err := d.fails(removal); !strings.Contains(err.Error(), "could not be completed") {
			t.Errorf("while nothing expands: %v", err)
		}
		if got := d.state.Workloads.TakeDropped(); len(got) != 1 || got[0] != run {
			t.Errorf("to drop: %v", got)
		}
		go func() {
			time.Sleep(time.Second)
			d.state.Workloads.SetExpanded(progress(), nil)
		}()
		began := time.Now()
		if d.write(removal); time.Since(began) != time.Second {
			t.Errorf("answered after %v", time.Since(began))
		}
		d.cfg.Shown = made{"StatefulSet db", false}
		if err := d.fails(kubeapi.Change{Remove: []kubeapi.Removal{{Ref: ref("PersistentVolumeClaim", "default", "data-db-0")}}}); !strings.Contains(err.Error(), "it is made by StatefulSet db") {
			t.Errorf("a claim: %v", err)
		}
	})
}

// made shows that something else makes all objects.
type made struct {
	by        string
	deletable bool
}

func (m made) Maker(kubeapi.Ref) (name string, deletable bool) { return m.by, m.deletable }
func (m made) Deleted(kubeapi.Ref)                             {}
