package kubeview

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/model"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/runtimetest"
	"monopod/runner/workload/saved"
)

const serviceYAML = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}\n"

// restarted ends a world, and returns the one of the next start, whose runtime is not open yet.
func restarted(t *testing.T, w *world, end func(), d model.Desired) *world {
	t.Helper()
	end()
	next := newWorld(t, nil)
	next.rt = w.rt
	next.state.Publish(d)
	return next
}

// TestWhatFollowsFromPodsIsUnseenWithThem: after a restart clients get what is right, or nothing yet.
func TestWhatFollowsFromPodsIsUnseenWithThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		end := w.open()
		d := desired(t, files, deploymentYAML+serviceYAML)
		d.Workloads[0].Given = &manifests.ServerMetadata{UID: "u", CreationTimestamp: metav1.Now()}
		w.publish(d)
		w.settle()
		w = restarted(t, w, end, d)
		objects, unseen := w.Objects(t.Context())
		for _, k := range append(w.kinds.ofPods(), w.kinds.pod) {
			if !errors.Is(unseen[k], node.ErrStarting) {
				t.Errorf("%s is seen: %v", k.Kind, unseen[k])
			}
		}
		if len(objects[w.kinds.namespace]) == 0 || unseen[w.kinds.service] != nil || len(objects[w.kinds.service]) != 1 {
			t.Errorf("what does not follow from pods is known: %v %v", objects, unseen)
		}
		changed, cancel := w.Subscribe()
		defer cancel()
		w.open()
		w.state.Workloads.SetExpanded(saved.State{}, nil) // as soon as pods have been seen
		for range changed {
			objects, unseen := w.Objects(t.Context())
			if len(unseen) > 0 {
				continue
			}
			o := objects[w.kinds.deployment][0].(*appsv1.Deployment)
			slices := objects[w.kinds.slice]
			if s := o.Status; s.ReadyReplicas != 2 || s.Conditions[0].Status != corev1.ConditionTrue || s.Conditions[1].Reason != "NewReplicaSetAvailable" || len(slices) != 1 {
				t.Errorf("%+v, %v", s, slices)
			}
			break
		}
	})
}

// TestPodsThatComeWhileTheRuntimeIsGone are known, besides those that were seen last, and what follows from those stays.
func TestPodsThatComeWhileTheRuntimeIsGone(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		d := desired(t, api, deploymentYAML)
		w.state.Workloads.SetExpanded(saved.State{}, nil)
		w.publish(d)
		w.settle()
		ready := get[*appsv1.Deployment](w, "apps/v1/Deployment", "web")
		w.state.Detach()
		w.state.Blind(errors.New("no containerd"))
		more := desired(t, api, deploymentYAML+podYAML("new", ""))
		more.Workloads = d.Workloads
		w.state.Publish(more)
		objects, unseen := w.Objects(t.Context())
		if len(unseen) != 1 || unseen[w.kinds.pod] == nil || len(objects[w.kinds.pod]) != 3 || objects[w.kinds.deployment][0] != kinds.Object(ready) {
			t.Errorf("unseen %v, pods %v", unseen, objects[w.kinds.pod])
		}
		w.state.Publish(desired(t, api, "# nothing\n"))
		if left := w.all("apps/v1/Deployment"); len(left) > 0 {
			t.Errorf("a Deployment that was deleted meanwhile is shown: %v", left)
		}
	})
}

// TestProgressIsUnseenUntilItIsLoaded: a Job that has completed would have no conditions, and a StatefulSet no claims.
func TestProgressIsUnseenUntilItIsLoaded(t *testing.T) {
	const set = `---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: i, command: [sh, -c, "` + runtimetest.ScriptServe + `"]}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
`
	bubble(t, nil, func(t *testing.T, w *world) {
		d := desired(t, api, jobYAML("Job", "j", "", runtimetest.ScriptSucceed)+jobYAML("CronJob", "tick", "", runtimetest.ScriptServe)+set)
		e := expand(t, w, d)
		_, unseen := w.Objects(t.Context())
		for _, k := range []*kinds.Kind{w.kinds.job, w.kinds.cronJob, w.kinds.claim} {
			if !errors.Is(unseen[k], node.ErrStarting) {
				t.Errorf("%s is seen", k.Kind)
			}
		}
		if unseen[w.kinds.statefulSet] != nil {
			t.Error("a StatefulSet needs no progress")
		}
		for range 3 {
			e.step(5 * time.Second)
		}
		if _, unseen = w.Objects(t.Context()); len(unseen) > 0 {
			t.Errorf("once it is known: %v", unseen)
		}
		if j := get[*batchv1.Job](w, "batch/v1/Job", "j"); j.Status.CompletionTime == nil {
			t.Errorf("%+v", j.Status)
		}
		get[*corev1.PersistentVolumeClaim](w, "PersistentVolumeClaim", "data-db-0")
	})
}
