package kubeview

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
	"monopod/node"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/runtimetest"
	"monopod/runner/workload"
)

func TestPodsOfFilesAreMirrors(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		w.publish(desired(t, files, podYAML("web", "")))
		w.settle()
		p := get[*corev1.Pod](w, "Pod", "web")
		for key, want := range map[string]string{AnnotationSource: "file", AnnotationOrigin: "/m/app.yaml:2", corev1.MirrorPodAnnotationKey: string(p.UID)} {
			if got := p.Annotations[key]; got != want && (key != AnnotationOrigin || !strings.HasPrefix(got, "/m/app.yaml:")) {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
		if p.Kind != "Pod" || p.APIVersion != "v1" || p.UID == "" || p.CreationTimestamp.IsZero() || p.Spec.NodeName != "node" || p.Status.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("%+v", p.ObjectMeta)
		}
		if p.Generation != 1 || p.Status.ObservedGeneration != 1 || p.Status.Conditions[0].ObservedGeneration != 1 {
			t.Errorf("generation %d, observed %d", p.Generation, p.Status.ObservedGeneration)
		}
		if again := get[*corev1.Pod](w, "Pod", "web"); again != p {
			t.Error("a pod that has not changed is another object")
		}
	})
}

func TestAppliedPods(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		d := applied(desired(t, api, podYAML("web", ", uid: 11111111-2222-3333-4444-555555555555")))
		d.Pods[0].Given.Finalizers = []string{"example.com/a"}
		w.publish(d)
		w.settle()
		p := get[*corev1.Pod](w, "Pod", "web")
		if len(p.Annotations) > 0 {
			t.Errorf("annotations %v", p.Annotations)
		}
		if p.UID != "11111111-2222-3333-4444-555555555555" || p.Generation != 3 || p.Status.ObservedGeneration != 3 || len(p.Finalizers) != 1 {
			t.Errorf("%+v, observed %d", p.ObjectMeta, p.Status.ObservedGeneration)
		}
		debugger := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(runtimetest.NewContainer("dbg", runtimetest.ScriptServe))}
		if err := w.state.AddEphemeral(t.Context(), manifests.Key{Namespace: "default", Name: "web"}, p.UID, []corev1.EphemeralContainer{debugger}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if p = get[*corev1.Pod](w, "Pod", "web"); p.Generation != 4 || p.Status.ObservedGeneration != 4 || len(p.Spec.EphemeralContainers) != 1 {
			t.Errorf("with an ephemeral container: generation %d, observed %d", p.Generation, p.Status.ObservedGeneration)
		}
	})
}

func TestRemovedPodIsTerminatingFirst(t *testing.T) {
	own := &kept{last: map[types.UID]*metav1.ObjectMeta{}}
	bubble(t, func(c *Config) { c.Kept = own }, func(t *testing.T, w *world) {
		stubborn := strings.Replace(podYAML("web", ""), runtimetest.ScriptServe, runtimetest.ScriptStubborn, 1)
		w.publish(desired(t, files, stubborn))
		w.settle()
		uid := get[*corev1.Pod](w, "Pod", "web").UID
		w.publish(desired(t, files, "# nothing\n"))
		time.Sleep(time.Second)
		synctest.Wait()
		if p := get[*corev1.Pod](w, "Pod", "web"); p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 || p.UID != uid {
			t.Errorf("%+v", p.ObjectMeta)
		}
		own.last[uid] = &metav1.ObjectMeta{Labels: map[string]string{"late": "yes"}}
		if p := get[*corev1.Pod](w, "Pod", "web"); p.Labels["late"] != "yes" || p.DeletionTimestamp == nil {
			t.Errorf("a label that a client has set since: %+v", p.ObjectMeta)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left := w.all("Pod"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestAPodThatEndsKeepsItsMetadata: its manifest is gone, with what the API has given to it.
func TestAPodThatEndsKeepsItsMetadata(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		stubborn := strings.Replace(podYAML("web", ", uid: 11111111-2222-3333-4444-555555555555"), runtimetest.ScriptServe, runtimetest.ScriptStubborn, 1)
		d := applied(desired(t, api, stubborn))
		d.Pods[0].Given.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
		w.publish(d)
		w.settle()
		before := get[*corev1.Pod](w, "Pod", "web")
		w.state.Publish(desired(t, api, "# nothing\n")) // the pool may not have followed yet
		if p := get[*corev1.Pod](w, "Pod", "web"); len(p.ManagedFields) != 1 || len(p.Annotations) > 0 || p.CreationTimestamp != before.CreationTimestamp {
			t.Errorf("at first: %+v", p.ObjectMeta)
		}
		w.publish(desired(t, api, "# nothing\n"))
		time.Sleep(time.Second)
		synctest.Wait()
		for range 2 {
			if p := get[*corev1.Pod](w, "Pod", "web"); p.DeletionTimestamp == nil || len(p.ManagedFields) != 1 || p.Generation != before.Generation+1 || p.CreationTimestamp != before.CreationTimestamp {
				t.Errorf("%+v", p.ObjectMeta)
			}
		}
	})
}

// TestAPodThatMovesToAFileHasNoMetadataOfTheAPI: it is the same pod, but no client manages it any more.
func TestAPodThatMovesToAFileHasNoMetadataOfTheAPI(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		text := podYAML("web", ", uid: 11111111-2222-3333-4444-555555555555")
		d := applied(desired(t, api, text))
		d.Pods[0].Given.ManagedFields, d.Pods[0].Given.Finalizers = []metav1.ManagedFieldsEntry{{Manager: "m"}}, []string{"example.com/a"}
		w.publish(d)
		w.settle()
		if p := get[*corev1.Pod](w, "Pod", "web"); len(p.ManagedFields)+len(p.Finalizers) != 2 {
			t.Errorf("%+v", p.ObjectMeta)
		}
		w.publish(desired(t, files, text))
		w.settle()
		if p := get[*corev1.Pod](w, "Pod", "web"); p.UID != "11111111-2222-3333-4444-555555555555" || p.DeletionTimestamp != nil || len(p.ManagedFields)+len(p.Finalizers) > 0 {
			t.Errorf("%+v", p.ObjectMeta)
		}
	})
}

func TestPodsHaveThePriorityOfTheirClass(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		class := "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 7\npreemptionPolicy: Never\n"
		w.publish(desired(t, files, podYAML("plain", "")+"---\n"+strings.Replace(podYAML("web", ""), "spec:", "spec:\n  priorityClassName: high", 1)+class))
		w.settle()
		for name, want := range map[string]string{"plain": "0 PreemptLowerPriority", "web": "7 Never"} {
			s := get[*corev1.Pod](w, "Pod", name).Spec
			if got := fmt.Sprintf("%d %s", *s.Priority, *s.PreemptionPolicy); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if p := get[*corev1.Pod](w, "Pod", "plain"); p.Spec.ServiceAccountName != "" {
			t.Errorf("a static pod has the account %s", p.Spec.ServiceAccountName)
		}
	})
}

func TestNothingIsGoneWhileItCannotBeSeen(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		objects, unseen := w.Objects(t.Context())
		pods, maps := kindNamed(t, "Pod"), kindNamed(t, "ConfigMap")
		if !errors.Is(unseen[pods], node.ErrStarting) || !errors.Is(unseen[maps], node.ErrStarting) || len(objects[pods]) > 0 {
			t.Errorf("before anything is known: %v", unseen)
		}
		w.publish(desired(t, files, podYAML("web", "")))
		w.settle()
		if _, unseen := w.Objects(t.Context()); len(unseen) > 0 {
			t.Errorf("all is known: %v", unseen)
		}
		before := get[*corev1.Pod](w, "Pod", "web")
		w.state.Detach()
		w.state.Blind(errors.New("no containerd"))
		objects, unseen = w.Objects(t.Context())
		if unseen[pods] == nil || len(objects[pods]) != 1 || objects[pods][0] != kinds.Object(before) {
			t.Errorf("without a runtime: %v, %v", unseen, objects[pods])
		}
	})
}

const deploymentYAML = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i, command: [sh, -c, "` + runtimetest.ScriptServe + `"], ports: [{name: http, containerPort: 8080}]}]}
`

func TestDeploymentAndItsReplicaSet(t *testing.T) {
	bubble(t, nil, func(t *testing.T, w *world) {
		d := desired(t, api, deploymentYAML)
		w.publish(d)
		w.settle()
		o := get[*appsv1.Deployment](w, "apps/v1/Deployment", "web")
		if s := o.Status; s.ReadyReplicas != 2 || s.UpdatedReplicas != 2 || s.ObservedGeneration != o.Generation || o.Generation != 1 || s.Conditions[1].Reason != "NewReplicaSetAvailable" {
			t.Errorf("%+v", s)
		}
		if o.UID == "" || o.CreationTimestamp.IsZero() || *o.Spec.RevisionHistoryLimit != 10 || o.Spec.Template.Spec.Containers[0].ImagePullPolicy == "" {
			t.Errorf("no defaults: %+v", o)
		}
		sets := w.all("apps/v1/ReplicaSet")
		if len(sets) != 1 {
			t.Fatalf("%d ReplicaSets", len(sets))
		}
		s, revision := sets[0].(*appsv1.ReplicaSet), workload.Revision(d.Workloads[0].Object.(*appsv1.Deployment).Spec.Template)
		if s.Name != "web-"+revision || !metav1.IsControlledBy(s, o) || s.Status.ReadyReplicas != 2 || s.Spec.Selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] != revision {
			t.Errorf("%+v", s)
		}
		for _, p := range w.all("Pod") {
			if !metav1.IsControlledBy(p, s) || p.GetAnnotations()[corev1.MirrorPodAnnotationKey] != "" {
				t.Errorf("%+v", p)
			}
		}
		if again := get[*appsv1.Deployment](w, "apps/v1/Deployment", "web"); again != o || w.all("apps/v1/ReplicaSet")[0] != sets[0] {
			t.Error("what has not changed is another object")
		}
		next := desired(t, api, strings.Replace(deploymentYAML, "image: i", "image: j", 1))
		w.state.Publish(next) // and the pods are still the old ones
		o = get[*appsv1.Deployment](w, "apps/v1/Deployment", "web")
		if o.Generation != 2 || o.Status.UpdatedReplicas != 0 || o.Status.Replicas != 2 || len(w.all("apps/v1/ReplicaSet")) != 2 {
			t.Errorf("generation %d, %+v", o.Generation, o.Status)
		}
	})
}

const objectsYAML = `---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: shop, resourceVersion: "7", managedFields: [{manager: x}]}
data: {a: b}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: v}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /v}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: free}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /w}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: bound}
spec: {volumeName: v, storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: waits}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}, {name: x, port: 81}]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: monopod.dev/directory
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: r}
handler: runc
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: p}
value: 7
`

func TestObjectsOfDocuments(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.ModTime = func(path string) (time.Time, bool) { return time.Unix(1e9, 0), path == "/m/app.yaml" }
	})
	w.state.Publish(desired(t, files, objectsYAML))
	c := get[*corev1.ConfigMap](w, "ConfigMap", "shop/c")
	if c.UID == "" || c.ResourceVersion != "" || c.ManagedFields != nil || c.Annotations[AnnotationSource] != "file" || c.CreationTimestamp.Unix() != 1e9 || c.Generation != 0 || c.Kind != "ConfigMap" {
		t.Errorf("%+v", c.ObjectMeta)
	}
	if s := get[*corev1.Secret](w, "Secret", "s"); string(s.Data["password"]) != "hunter2" || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("%+v", s)
	}
	if v := get[*corev1.PersistentVolume](w, "PersistentVolume", "v"); v.Status.Phase != corev1.VolumeBound || v.Spec.ClaimRef.Name != "bound" || v.Spec.ClaimRef.Namespace != "default" {
		t.Errorf("%+v", v)
	}
	if v := get[*corev1.PersistentVolume](w, "PersistentVolume", "free"); v.Status.Phase != corev1.VolumeAvailable || v.Spec.ClaimRef != nil {
		t.Errorf("%+v", v)
	}
	if c := get[*corev1.PersistentVolumeClaim](w, "PersistentVolumeClaim", "bound"); c.Status.Phase != corev1.ClaimBound || c.Status.Capacity.Storage().String() != "1Gi" {
		t.Errorf("%+v", c)
	}
	if c := get[*corev1.PersistentVolumeClaim](w, "PersistentVolumeClaim", "waits"); c.Status.Phase != corev1.ClaimPending {
		t.Errorf("%+v", c)
	}
	if s := get[*corev1.Service](w, "Service", "web"); s.Spec.Type != corev1.ServiceTypeClusterIP || s.Spec.Ports[1].TargetPort.IntVal != 81 || s.Spec.Ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("%+v", s.Spec)
	}
	for kind, name := range map[string]string{"storage.k8s.io/v1/StorageClass": "fast", "node.k8s.io/v1/RuntimeClass": "r", "scheduling.k8s.io/v1/PriorityClass": "p"} {
		if o := get[kinds.Object](w, kind, name); o.GetUID() == "" || o.GetNamespace() != "" {
			t.Errorf("%s: %+v", kind, o)
		}
	}
}

// TestUnchangedObjectsAreTheSame: all of them, although everything is worked out again.
func TestUnchangedObjectsAreTheSame(t *testing.T) {
	bubble(t, func(c *Config) { c.APIAddress = func() (string, string) { return "192.0.2.1:6443", "192.0.2.1:6443" } }, func(t *testing.T, w *world) {
		w.publish(desired(t, files, deploymentYAML+objectsYAML+podYAML("alone", "")))
		w.settle()
		before, _ := w.Objects(t.Context())
		time.Sleep(time.Second)
		after, _ := w.Objects(t.Context())
		seen, count := map[kinds.Object]bool{}, 0
		for k, all := range before {
			for _, o := range all {
				if seen[o] = true; o.GetUID() == "" || o.GetCreationTimestamp().Time.IsZero() || o.GetObjectKind().GroupVersionKind() != k.GroupVersionKind || o.GetResourceVersion() != "" {
					t.Errorf("%s %s/%s is not complete: %+v", k.Kind, o.GetNamespace(), o.GetName(), o)
				}
			}
		}
		for k, all := range after {
			for _, o := range all {
				if count++; !seen[o] {
					t.Errorf("%s %s/%s is another object", k.Kind, o.GetNamespace(), o.GetName())
				}
			}
		}
		if count != len(seen) || count < 30 {
			t.Errorf("%d objects, before %d", count, len(seen))
		}
		if len(w.lives) != count {
			t.Errorf("%d objects are remembered of %d", len(w.lives), count)
		}
	})
}

// TestSharedObjectsAreNotChanged: documents stay as they are.
func TestSharedObjectsAreNotChanged(t *testing.T) {
	w := newWorld(t, nil)
	d, same := desired(t, files, deploymentYAML+objectsYAML), desired(t, files, deploymentYAML+objectsYAML)
	w.state.Publish(d)
	w.Objects(t.Context())
	for i := range d.Objects {
		if !equalJSON(t, d.Objects[i].Object, same.Objects[i].Object) {
			t.Errorf("%s was changed", d.Objects[i])
		}
	}
	if !equalJSON(t, d.Workloads[0].Object, same.Workloads[0].Object) {
		t.Error("the Deployment was changed")
	}
}

// TestOnlyObjectsOfFilesHaveTheirOrigin: watches tell by it which Secrets were hidden, so clients cannot write it.
func TestOnlyObjectsOfFilesHaveTheirOrigin(t *testing.T) {
	const text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {monopod.dev/origin: copied, a: b}}\n"
	for source, want := range map[string]string{files: "/m/app.yaml:1", api: ""} {
		w := newWorld(t, nil)
		w.state.Publish(desired(t, source, text))
		if s := get[*corev1.Secret](w, "Secret", "s"); s.Annotations[AnnotationOrigin] != want || s.Annotations["a"] != "b" {
			t.Errorf("%s: %v", source, s.Annotations)
		}
	}
}
