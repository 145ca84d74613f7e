package writes_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	autoscalingac "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"monopod/node/kubeapi"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/kubetest"
)

// serve starts the API over a store, and returns clients that speak JSON and protobuf.
func serve(t *testing.T, store *kubetest.Store) map[string]*kubernetes.Clientset {
	t.Helper()
	url := listen(t, store)
	clients := map[string]*kubernetes.Clientset{}
	for name, media := range map[string]string{"JSON": runtime.ContentTypeJSON, "protobuf": runtime.ContentTypeProtobuf} {
		c, err := kubernetes.NewForConfig(&rest.Config{
			Host: url, QPS: -1, UserAgent: "tester/1.0 (linux)",
			ContentConfig: rest.ContentConfig{ContentType: media, AcceptContentTypes: media},
		})
		if err != nil {
			t.Fatal(err)
		}
		clients[name] = c
	}
	return clients
}

func listen(t *testing.T, store *kubetest.Store) string {
	t.Helper()
	api := kubeapi.New(kubeapi.Config{State: store, Writer: store, Policy: access.NewPolicy(nil), Epoch: 1, Node: "node-1", Version: "v1.0.0"})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.Handler().ServeHTTP(w, r.WithContext(access.WithUser(r.Context(), access.Root())))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// each runs a test with both clients, each with its own store.
func each(t *testing.T, test func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset), objects ...kinds.Object) {
	t.Helper()
	for _, media := range []string{"JSON", "protobuf"} {
		t.Run(media, func(t *testing.T) {
			t.Parallel()
			store := kubetest.New()
			for _, o := range objects {
				store.Put(o.DeepCopyObject().(kinds.Object))
			}
			test(t, store, serve(t, store)[media])
		})
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func refuses(t *testing.T, err error, is func(error) bool, text string) {
	t.Helper()
	if err == nil || !is(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("have %v (%s), want %q", err, apierrors.ReasonForError(err), text)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"a": "1"}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/image:1"}}, NodeName: "node-1"},
	}
}

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("x").Spec},
		},
	}
}

func TestCreateUpdateDelete(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, maps := t.Context(), c.CoreV1().ConfigMaps("default")
		made := must[*corev1.ConfigMap](t)(maps.Create(ctx, configMap("x"), metav1.CreateOptions{}))
		if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() {
			t.Errorf("metadata is missing: %v", made.ObjectMeta)
		}
		if m := made.ManagedFields; len(m) != 1 || m[0].Manager != "tester" || m[0].Operation != metav1.ManagedFieldsOperationUpdate {
			t.Errorf("managed fields: %v", m)
		}
		_, err := maps.Create(ctx, configMap("x"), metav1.CreateOptions{})
		refuses(t, err, apierrors.IsAlreadyExists, `configmaps "x" already exists`)
		_, err = c.CoreV1().ConfigMaps("none").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		refuses(t, err, apierrors.IsNotFound, `namespaces "none" not found`)
		_, err = c.CoreV1().ConfigMaps("none").Create(ctx, configMap("x"), metav1.CreateOptions{})
		refuses(t, err, apierrors.IsBadRequest, "the namespace of the provided object does not match the namespace sent on the request")

		same := must[*corev1.ConfigMap](t)(maps.Update(ctx, made, metav1.UpdateOptions{}))
		if same.ResourceVersion != made.ResourceVersion || store.Writes() != 1 {
			t.Errorf("an update without a change was stored: %s, %s, %d", made.ResourceVersion, same.ResourceVersion, store.Writes())
		}
		edited := made.DeepCopy()
		edited.Data["b"] = "2"
		now := must[*corev1.ConfigMap](t)(maps.Update(ctx, edited, metav1.UpdateOptions{}))
		if now.ResourceVersion == made.ResourceVersion || now.Data["b"] != "2" || now.UID != made.UID {
			t.Errorf("not updated: %v", now)
		}
		edited.Data["b"] = "3"
		_, err = maps.Update(ctx, edited, metav1.UpdateOptions{})
		refuses(t, err, apierrors.IsConflict, `Operation cannot be fulfilled on configmaps "x": the object has been modified; please apply your changes to the latest version and try again`)
		_, err = maps.Update(ctx, configMap("missing"), metav1.UpdateOptions{})
		refuses(t, err, apierrors.IsNotFound, `configmaps "missing" not found`)

		err = maps.Delete(ctx, "x", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")})
		refuses(t, err, apierrors.IsConflict, "the UID in the precondition (other) does not match the UID in record")
		if err := maps.Delete(ctx, "x", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Fatal(err)
		}
		must[*corev1.ConfigMap](t)(maps.Get(ctx, "x", metav1.GetOptions{}))
		if err := maps.Delete(ctx, "x", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		refuses(t, maps.Delete(ctx, "x", metav1.DeleteOptions{}), apierrors.IsNotFound, `configmaps "x" not found`)
	})
}

func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *kubetest.Store, c *kubernetes.Clientset) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
		made := must[*corev1.ConfigMap](t)(c.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}))
		if len(made.Name) != len("x-")+5 {
			t.Errorf("name %q", made.Name)
		}
	})
}

func TestPods(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, pods := t.Context(), c.CoreV1().Pods("default")
		web := pod("web")
		web.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *quantity("2")}
		made := must[*corev1.Pod](t)(pods.Create(ctx, web, metav1.CreateOptions{}))
		if made.Spec.RestartPolicy != corev1.RestartPolicyAlways || made.Spec.Containers[0].ImagePullPolicy == "" {
			t.Errorf("not defaulted: %v", made.Spec)
		}
		node := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Target: corev1.ObjectReference{Name: "node-1"}}
		if err := pods.Bind(ctx, node, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		node.Target.Name = "other"
		refuses(t, pods.Bind(ctx, node, metav1.CreateOptions{}), apierrors.IsConflict, `pod web is already assigned to node "node-1"`)

		edited := made.DeepCopy()
		edited.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU] = *quantity("3")
		resized := must[*corev1.Pod](t)(pods.UpdateResize(ctx, "web", edited.DeepCopy(), metav1.UpdateOptions{}))
		edited.ResourceVersion, edited.Spec.Containers[0].Image = "", "example.com/image:2"
		again := must[*corev1.Pod](t)(pods.UpdateResize(ctx, "web", edited.DeepCopy(), metav1.UpdateOptions{}))
		if again.Spec.Containers[0].Image != made.Spec.Containers[0].Image || again.ResourceVersion != resized.ResourceVersion {
			t.Errorf("a resize changed more than resources: %v", again)
		}
		edited.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		_, err := pods.UpdateResize(ctx, "web", edited, metav1.UpdateOptions{})
		refuses(t, err, apierrors.IsInvalid, "Pod QOS Class may not change")

		if err := pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}); err != nil {
			t.Fatal(err)
		}
		if o := store.Get(kubetest.RefOf(made)); o == nil || o.GetDeletionTimestamp() == nil {
			t.Errorf("an evicted pod gets its grace period: %v", o)
		}
		if err := pods.Delete(ctx, "web", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		if o := store.Get(kubetest.RefOf(made)); o != nil {
			t.Errorf("0 seconds kill: %v", o)
		}
	})
}

func TestStatusOfPods(t *testing.T) {
	t.Parallel()
	gated := pod("web")
	gated.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/ok"}}
	gated.Status.Phase = corev1.PodRunning
	each(t, func(t *testing.T, _ *kubetest.Store, c *kubernetes.Clientset) {
		body := `{"status":{"phase":"Failed","conditions":[{"type":"example.com/ok","status":"True"},{"type":"Ready","status":"True"}]}}`
		p := must[*corev1.Pod](t)(c.CoreV1().Pods("default").Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status"))
		if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Type != "example.com/ok" || p.Status.Phase != corev1.PodRunning {
			t.Errorf("status: %v", p.Status)
		}
	}, gated)
}

func TestStatusOfOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *kubetest.Store, c *kubernetes.Clientset) {
		ctx, all := t.Context(), c.AppsV1().Deployments("default")
		d := must[*appsv1.Deployment](t)(all.Create(ctx, deployment("web"), metav1.CreateOptions{}))
		must[*appsv1.Deployment](t)(all.UpdateStatus(ctx, d, metav1.UpdateOptions{}))
		d.Status.Replicas = 7
		_, err := all.UpdateStatus(ctx, d, metav1.UpdateOptions{})
		refuses(t, err, apierrors.IsForbidden, "its status is managed by monopod and read-only")
	})
}

func TestScale(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *kubetest.Store, c *kubernetes.Clientset) {
		ctx, all := t.Context(), c.AppsV1().Deployments("default")
		made := must[*appsv1.Deployment](t)(all.Create(ctx, deployment("web"), metav1.CreateOptions{}))
		if made.Generation != 1 || *made.Spec.Replicas != 1 {
			t.Errorf("created: %v", made)
		}
		scale := must[*autoscalingv1.Scale](t)(all.GetScale(ctx, "web", metav1.GetOptions{}))
		if scale.Spec.Replicas != 1 || scale.Status.Selector != "app=web" {
			t.Errorf("scale: %v", scale)
		}
		scale.Spec.Replicas = 3
		must[*autoscalingv1.Scale](t)(all.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}))
		now := must[*appsv1.Deployment](t)(all.Get(ctx, "web", metav1.GetOptions{}))
		if *now.Spec.Replicas != 3 || now.Generation != 2 {
			t.Errorf("scaled: %d, generation %d", *now.Spec.Replicas, now.Generation)
		}
		_, err := all.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
		refuses(t, err, apierrors.IsConflict, "the object has been modified")
		_, err = all.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":100000}}`), metav1.PatchOptions{}, "scale")
		refuses(t, err, apierrors.IsInvalid, "must be less than or equal to 1000")
		applied := autoscalingac.Scale().WithName("web").WithNamespace("default").WithSpec(autoscalingac.ScaleSpec().WithReplicas(4))
		_, err = all.ApplyScale(ctx, "web", applied, metav1.ApplyOptions{FieldManager: "hpa"})
		refuses(t, err, apierrors.IsConflict, "conflict")
		forced := must[*autoscalingv1.Scale](t)(all.ApplyScale(ctx, "web", applied, metav1.ApplyOptions{FieldManager: "hpa", Force: true}))
		if forced.Spec.Replicas != 4 {
			t.Errorf("applied: %v", forced.Spec)
		}
	})
}

func TestApply(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, maps := t.Context(), c.CoreV1().ConfigMaps("default")
		one := coreac.ConfigMap("x", "default").WithData(map[string]string{"a": "1"})
		made := must[*corev1.ConfigMap](t)(maps.Apply(ctx, one, metav1.ApplyOptions{FieldManager: "one"}))
		if made.UID == "" || len(made.ManagedFields) != 1 || made.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("created: %v", made)
		}
		must[*corev1.ConfigMap](t)(maps.Apply(ctx, one, metav1.ApplyOptions{FieldManager: "one"}))
		if store.Writes() != 1 {
			t.Errorf("an Apply without a change was stored")
		}
		two := coreac.ConfigMap("x", "default").WithData(map[string]string{"a": "2"})
		_, err := maps.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "two"})
		refuses(t, err, apierrors.IsConflict, `Apply failed with 1 conflict: conflict with "one": .data.a`)
		if !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
			t.Errorf("no cause: %v", err)
		}
		now := must[*corev1.ConfigMap](t)(maps.Apply(ctx, two, metav1.ApplyOptions{FieldManager: "two", Force: true}))
		if now.Data["a"] != "2" {
			t.Errorf("not forced: %v", now.Data)
		}
		gone := must[*corev1.ConfigMap](t)(maps.Apply(ctx, coreac.ConfigMap("x", "default"), metav1.ApplyOptions{FieldManager: "two", Force: true}))
		if len(gone.Data) != 0 {
			t.Errorf("fields that are no longer applied stay: %v", gone.Data)
		}
	})
}

func TestApplyWorkload(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *kubetest.Store, c *kubernetes.Clientset) {
		labels := map[string]string{"app": "web"}
		d := appsac.Deployment("web", "default").WithSpec(appsac.DeploymentSpec().
			WithSelector(metaac.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(coreac.PodTemplateSpec().WithLabels(labels).WithSpec(coreac.PodSpec().
				WithContainers(coreac.Container().WithName("c").WithImage("example.com/image:1").WithPorts(coreac.ContainerPort().WithContainerPort(80))))))
		all := c.AppsV1().Deployments("default")
		made := must[*appsv1.Deployment](t)(all.Apply(t.Context(), d, metav1.ApplyOptions{FieldManager: "x"}))
		if *made.Spec.Replicas != 1 || made.Spec.Template.Spec.Containers[0].Ports[0].Protocol != corev1.ProtocolTCP {
			t.Errorf("not defaulted: %v", made.Spec)
		}
		d.Spec.Template.Spec.Containers[0].WithImage("example.com/image:2")
		now := must[*appsv1.Deployment](t)(all.Apply(t.Context(), d, metav1.ApplyOptions{FieldManager: "x"}))
		if now.Generation != 2 || now.Spec.Template.Spec.Containers[0].Image != "example.com/image:2" {
			t.Errorf("not applied: %v", now)
		}
	})
}

func TestDefinedElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, pods := t.Context(), c.CoreV1().Pods("default")
		store.Elsewhere("/etc/monopod/web.yaml:1", false, pod("web"))
		store.Elsewhere("Deployment default/api", true, pod("api-1"))
		want := `pods "web" is forbidden: it is defined in /etc/monopod/web.yaml:1; change it there`
		_, err := pods.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		refuses(t, err, apierrors.IsForbidden, want)
		refuses(t, pods.Delete(ctx, "web", metav1.DeleteOptions{}), apierrors.IsForbidden, want)
		_, err = pods.Patch(ctx, "api-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		refuses(t, err, apierrors.IsForbidden, "it is defined in Deployment default/api")
		if err := pods.Delete(ctx, "api-1", metav1.DeleteOptions{}); err != nil {
			t.Errorf("pods of workloads can be deleted: %v", err)
		}
		if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		if store.Get(kubetest.RefOf(pod("web"))) == nil {
			t.Error("deletecollection removed what is defined elsewhere")
		}
	})
}

func TestFinalizersAndDependents(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, maps := t.Context(), c.CoreV1().ConfigMaps("default")
		held := configMap("held")
		held.Finalizers = []string{"example.com/hold"}
		made := must[*corev1.ConfigMap](t)(maps.Create(ctx, held, metav1.CreateOptions{}))
		child := configMap("child")
		child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "held", UID: made.UID}}
		must[*corev1.ConfigMap](t)(maps.Create(ctx, child, metav1.CreateOptions{}))
		orphan := metav1.DeletePropagationOrphan
		refuses(t, maps.Delete(ctx, "held", metav1.DeleteOptions{PropagationPolicy: &orphan}), apierrors.IsInvalid, "propagationPolicy")
		for range 2 {
			if err := maps.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		now := must[*corev1.ConfigMap](t)(maps.Get(ctx, "held", metav1.GetOptions{}))
		if now.DeletionTimestamp == nil || store.Writes() != 3 {
			t.Errorf("deletion: %v, %d writes", now.DeletionTimestamp, store.Writes())
		}
		must[*corev1.ConfigMap](t)(maps.Patch(ctx, "held", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{}))
		for _, name := range []string{"held", "child"} {
			_, err := maps.Get(ctx, name, metav1.GetOptions{})
			refuses(t, err, apierrors.IsNotFound, name)
		}
		if store.Writes() != 4 {
			t.Errorf("%d writes", store.Writes())
		}
	})
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, all := context.Background(), c.CoreV1().Namespaces()
		for _, name := range []string{"one", "two"} {
			n := must[*corev1.Namespace](t)(all.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))
			if n.Status.Phase != corev1.NamespaceActive || n.Labels[corev1.LabelMetadataName] != name {
				t.Errorf("created: %v", n)
			}
			must[*corev1.ConfigMap](t)(c.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}))
		}
		refuses(t, all.Delete(ctx, "default", metav1.DeleteOptions{}), apierrors.IsForbidden, "this namespace may not be deleted")
		file := configMap("file")
		file.Namespace = "two"
		store.Elsewhere("/etc/x.yaml:1", false, file)
		writes := store.Writes()
		for _, name := range []string{"one", "two"} {
			if err := all.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if store.Writes() != writes+2 {
			t.Errorf("%d writes", store.Writes()-writes)
		}
		_, err := all.Get(ctx, "one", metav1.GetOptions{})
		refuses(t, err, apierrors.IsNotFound, "one")
		must[*corev1.Namespace](t)(all.Get(ctx, "two", metav1.GetOptions{}))
		left := must[*corev1.ConfigMapList](t)(c.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{}))
		if len(left.Items) != 1 || left.Items[0].Name != "file" {
			t.Errorf("left: %v", left.Items)
		}
	})
}

func TestDeleteCollectionIsOneWrite(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, store *kubetest.Store, c *kubernetes.Clientset) {
		ctx, maps := t.Context(), c.CoreV1().ConfigMaps("default")
		for _, name := range []string{"a", "b", "c"} {
			m := configMap(name)
			m.Labels = map[string]string{"keep": map[bool]string{true: "yes", false: "no"}[name == "c"]}
			must[*corev1.ConfigMap](t)(maps.Create(ctx, m, metav1.CreateOptions{}))
		}
		writes := store.Writes()
		if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep=no"}); err != nil {
			t.Fatal(err)
		}
		left := must[*corev1.ConfigMapList](t)(maps.List(ctx, metav1.ListOptions{}))
		if len(left.Items) != 1 || left.Items[0].Name != "c" || store.Writes() != writes+1 {
			t.Errorf("left %v after %d writes", left.Items, store.Writes()-writes)
		}
	})
}
