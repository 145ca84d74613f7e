package kubeview

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"monopod/node"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/runtimetest"
)

// change replaces the documents, and waits until nothing changes.
func (e *expanding) change(text string) {
	e.t.Helper()
	e.desired = desired(e.t, api, text)
	e.state.Publish(e.desired)
	for range 6 {
		e.step(5 * time.Second)
	}
}

func appYAML(kind, meta, spec, image string) string {
	return fmt.Sprintf("---\napiVersion: apps/v1\nkind: %s\nmetadata: {name: web%s}\nspec:\n  selector: {matchLabels: {app: web}}\n%s  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: c, image: %s, command: [sh, -c, %q], env: [{name: A, value: '<&>'}]}]}\n",
		kind, meta, spec, image, runtimetest.ScriptServe)
}

func because(text string) string {
	return ", annotations: {kubernetes.io/change-cause: " + text + ", team: a}"
}

// replicaSets lists the ReplicaSets of a Deployment: revision, replicas, image and cause.
func (w *world) replicaSets(d *appsv1.Deployment) map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for _, o := range w.all("apps/v1/ReplicaSet") {
		s := o.(*appsv1.ReplicaSet)
		a := s.Annotations
		if !metav1.IsControlledBy(s, d) || s.Status.ObservedGeneration != s.Generation || a[corev1.LastAppliedConfigAnnotation] != "" {
			w.t.Errorf("%+v", s)
		}
		found[a["deployment.kubernetes.io/revision"]] = fmt.Sprintf("%d/%d %s %s%s", s.Status.Replicas, *s.Spec.Replicas, s.Spec.Template.Spec.Containers[0].Image, a["kubernetes.io/change-cause"], a["deployment.kubernetes.io/revision-history"])
	}
	return found
}

func (w *world) wantSets(want map[string]string) *appsv1.Deployment {
	w.t.Helper()
	d := get[*appsv1.Deployment](w, "apps/v1/Deployment", "web")
	got := w.replicaSets(d)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.t.Errorf("%v, want %v", got, want)
	}
	return d
}

// TestRevisionsOfADeployment: what kubectl rollout history, undo and describe read.
func TestRevisionsOfADeployment(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		e := expand(t, w, desired(t, api, deploymentYAML))
		one := appYAML("Deployment", because("one"), "  replicas: 2\n", "i")
		e.change(one)
		first := get[*appsv1.Deployment](w, "apps/v1/Deployment", "web")
		e.change(appYAML("Deployment", because("two"), "  replicas: 2\n", "j"))
		d := w.wantSets(map[string]string{"1": "0/0 i one", "2": "2/2 j two"})
		if d.Annotations["deployment.kubernetes.io/revision"] != "2" || d.Annotations["team"] != "a" {
			t.Errorf("%v", d.Annotations)
		}
		for _, o := range w.all("apps/v1/ReplicaSet") {
			s := o.(*appsv1.ReplicaSet)
			delete(s.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
			if s.Annotations["deployment.kubernetes.io/revision"] == "1" && (!equality.Semantic.DeepEqual(s.Spec.Template, first.Spec.Template) || s.Annotations["team"] != "a") {
				t.Errorf("%+v\n%+v", s.Spec.Template, first.Spec.Template)
			}
		}
		before := w.all("apps/v1/ReplicaSet")
		if after := w.all("apps/v1/ReplicaSet"); before[0] != after[0] || before[1] != after[1] {
			t.Error("what has not changed is another object")
		}
		e.change(one)
		w.wantSets(map[string]string{"2": "0/0 j two", "3": "2/2 i one1"})
		e.change(appYAML("Deployment", "", "  replicas: 2\n  paused: true\n", "k"))
		d = w.wantSets(map[string]string{"2": "0/0 j two", "3": "2/2 i one1"})
		if c := d.Status.Conditions[1]; c.Reason != "DeploymentPaused" || d.Status.UpdatedReplicas != 0 || d.Status.Replicas != 2 || d.Annotations["deployment.kubernetes.io/revision"] != "3" {
			t.Errorf("%+v", d.Status)
		}
		e.change(appYAML("Deployment", "", "  replicas: 2\n", "k"))
		w.wantSets(map[string]string{"2": "0/0 j two", "3": "0/0 i one1", "4": "2/2 k "})
	})
}

// TestADeploymentThatIsCreatedPaused: without pods, ReplicaSets and revision.
func TestADeploymentThatIsCreatedPaused(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		e := expand(t, w, desired(t, api, deploymentYAML))
		e.change(appYAML("Deployment", "", "  paused: true\n", "i"))
		d := w.wantSets(map[string]string{})
		if _, ok := d.Annotations["deployment.kubernetes.io/revision"]; ok || d.Status.Replicas != 0 {
			t.Errorf("%+v", d)
		}
	})
}

// TestRevisionsAreShownBeforeTheyAreStored: a change is visible before the expander has noticed it.
func TestRevisionsAreShownBeforeTheyAreStored(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		e := expand(t, w, desired(t, api, deploymentYAML))
		e.change(appYAML("Deployment", "", "", "i"))
		w.state.Publish(desired(t, api, appYAML("Deployment", "", "", "j")))
		w.wantSets(map[string]string{"1": "1/1 i ", "2": "0/1 j "})
	})
}

// TestRevisionsAreNotSeenBeforeTheyAreRead: those of the last run are in a file.
func TestRevisionsAreNotSeenBeforeTheyAreRead(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		d := desired(t, api, deploymentYAML)
		w.state.Publish(d)
		_, unseen := w.Objects(t.Context())
		for _, kind := range []string{"apps/v1/ReplicaSet", "apps/v1/ControllerRevision"} {
			if !errors.Is(unseen[kindNamed(t, kind)], node.ErrStarting) {
				t.Errorf("%s: %v", kind, unseen)
			}
		}
		if unseen[kindNamed(t, "apps/v1/Deployment")] != nil {
			t.Errorf("%v", unseen)
		}
		expand(t, w, d).step(time.Second)
		if _, unseen := w.Objects(t.Context()); len(unseen) > 0 {
			t.Errorf("%v", unseen)
		}
	})
}

// kubectlPatch is what kubectl makes of a StatefulSet or DaemonSet to find out whether it has the template of a revision.
func kubectlPatch(t *testing.T, o kinds.Object) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]any
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	template := raw["spec"].(map[string]any)["template"].(map[string]any)
	template["$patch"] = "replace"
	text, err = json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestControllerRevisions: what kubectl rollout history and undo read of StatefulSets and DaemonSets.
func TestControllerRevisions(t *testing.T) {
	for kind, label := range map[string]string{"StatefulSet": "controller.kubernetes.io/hash", "DaemonSet": "controller-revision-hash"} {
		bubble(t, nil, func(t *testing.T, w *world) {
			e := expand(t, w, desired(t, api, deploymentYAML))
			e.change(appYAML(kind, because("one"), "", "i"))
			first := get[kinds.Object](w, "apps/v1/"+kind, "web")
			e.change(appYAML(kind, because("two"), "", "j"))
			now := get[kinds.Object](w, "apps/v1/"+kind, "web")
			all := w.all("apps/v1/ControllerRevision")
			if len(all) != 2 {
				t.Fatalf("%s: %v", kind, all)
			}
			for i, o := range []kinds.Object{first, now} {
				r := all[i].(*appsv1.ControllerRevision)
				if r.Revision != int64(i+1) || string(r.Data.Raw) != kubectlPatch(t, o) || !metav1.IsControlledBy(r, now) || r.Annotations["kubernetes.io/change-cause"] != []string{"one", "two"}[i] {
					t.Errorf("%s: %+v\n%s\n%s", kind, r, r.Data.Raw, kubectlPatch(t, o))
				}
				if !labels.SelectorFromSet(labels.Set{"app": "web"}).Matches(labels.Set(r.Labels)) || r.Name != "web-"+r.Labels[label] || r.Kind != "ControllerRevision" {
					t.Errorf("%s: %+v", kind, r)
				}
			}
			if s, ok := now.(*appsv1.StatefulSet); ok && (s.Status.CurrentRevision != all[1].GetName() || s.Status.UpdateRevision != all[1].GetName()) {
				t.Errorf("%+v", s.Status)
			}
			text, err := json.Marshal(now)
			if err != nil {
				t.Fatal(err)
			}
			back, err := strategicpatch.StrategicMergePatch(text, all[0].(*appsv1.ControllerRevision).Data.Raw, now)
			if err != nil || !strings.Contains(string(back), `"image":"i"`) {
				t.Errorf("%s: %v", back, err)
			}
			if again := w.all("apps/v1/ControllerRevision"); again[0] != all[0] || again[1] != all[1] {
				t.Error("what has not changed is another object")
			}
		})
	}
}

// TestStatusOfAPartitionedStatefulSet: currentRevision is the name of the old ControllerRevision until all pods are updated.
func TestStatusOfAPartitionedStatefulSet(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		e := expand(t, w, desired(t, api, deploymentYAML))
		spec := func(partition int) string {
			return fmt.Sprintf("  replicas: 2\n  updateStrategy: {rollingUpdate: {partition: %d}}\n", partition)
		}
		e.change(appYAML("StatefulSet", "", spec(1), "i"))
		e.change(appYAML("StatefulSet", "", spec(1), "j"))
		all := w.all("apps/v1/ControllerRevision")
		s := get[*appsv1.StatefulSet](w, "apps/v1/StatefulSet", "web").Status
		if len(all) != 2 || s.CurrentRevision != all[0].GetName() || s.UpdateRevision != all[1].GetName() || s.CurrentReplicas != 1 || s.UpdatedReplicas != 1 {
			t.Errorf("%+v", s)
		}
		e.change(appYAML("StatefulSet", "", spec(0), "j"))
		if s := get[*appsv1.StatefulSet](w, "apps/v1/StatefulSet", "web").Status; s.CurrentRevision != all[1].GetName() || s.CurrentReplicas != 2 {
			t.Errorf("%+v", s)
		}
	})
}
