//go:build e2e

package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/node/apiserver/apitest"
	"monopod/node/apiserver/client"
	"monopod/node/apiserver/mirror"
)

const (
	nodePath  = "/api/v1/nodes/n1"
	leasePath = client.CoordinationAPI + "/namespaces/kube-node-lease/leases/n1"
	webPath   = "/api/v1/namespaces/default/pods/web-n1"
)

// rig is an API server, a proxy before it, and what a test asks of them.
type rig struct {
	*apitest.Server
	t     *testing.T
	proxy *apitest.Proxy
}

func newRig(t *testing.T) *rig {
	s := apitest.Start(t, apitest.Options{})
	return &rig{Server: s, t: t, proxy: apitest.NewProxy(t, s.Address)}
}

func (r *rig) pod(path string) (*corev1.Pod, error) {
	p := &corev1.Pod{}
	return p, r.Do(http.MethodGet, path, nil, p)
}

// shows waits until a mirror shows the status of its pod.
func (r *rig) shows(what, path string, right func(*corev1.Pod) bool) *corev1.Pod {
	r.t.Helper()
	var p *corev1.Pod
	r.Eventually(what, func() (err error) {
		if p, err = r.pod(path); err != nil {
			return err
		}
		if !right(p) {
			return fmt.Errorf("%+v\n%+v\n%+v", p.ObjectMeta, p.Spec, p.Status)
		}
		return nil
	})
	return p
}

func isRunning(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].Ready
}

func TestARealAPIServerShowsTheNodeAndItsPods(t *testing.T) {
	r := newRig(t)
	pods := newBoard(running("web"))
	cfg := config(t, r.Kubeconfig(r.proxy.Address(), apitest.Node("n1")), pods)
	stop := start(t, cfg)

	web := r.shows("the mirror runs", webPath, isRunning)
	if web.Annotations[corev1.MirrorPodAnnotationKey] != "uid-of-web" || web.OwnerReferences[0].Kind != "Node" || web.Spec.NodeName != "n1" || web.Status.PodIP != "10.229.0.2" {
		t.Errorf("%+v", web)
	}
	t.Run("node", func(t *testing.T) { r.testNode(t) })
	t.Run("lease", func(t *testing.T) { r.testLease(t) })
	t.Run("a status follows", func(t *testing.T) { r.testStatus(t, pods) })
	t.Run("a mirror that others change", func(t *testing.T) { r.testTampered(t, pods) })
	t.Run("a mirror that is deleted comes back", func(t *testing.T) { r.testDeletedMirror(t) })
	t.Run("a pod that needs objects", func(t *testing.T) { r.testReferences(t, pods) })
	t.Run("a pod that is not let in", func(t *testing.T) { r.testRefused(t, pods) })
	t.Run("a pod that goes", func(t *testing.T) { r.testGone(t, pods) })
	t.Run("a server that comes and goes", func(t *testing.T) { r.testOutages(t, pods) })
	stop()
}

func (r *rig) testNode(t *testing.T) {
	var n corev1.Node
	r.Must(http.MethodGet, nodePath, nil, &n)
	if n.Labels["site"] != "lab" || n.Labels[corev1.LabelHostname] != "n1" || n.Labels[corev1.LabelOSStable] != "linux" || len(n.Spec.Taints) == 0 || n.Status.Capacity.Cpu().Value() != 2 ||
		n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("%+v", n)
	}
	before := n.UID
	// Others change it: it is repaired; their own conditions stay.
	r.Must(http.MethodPatch, nodePath+"/status", map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}, {Type: "FromOthers", Status: corev1.ConditionTrue, Reason: "x"},
	}}}, nil)
	r.Eventually("the node is ready again", func() error {
		r.Must(http.MethodGet, nodePath, nil, &n)
		if len(n.Status.Conditions) == 2 && n.Status.Conditions[0].Status == corev1.ConditionTrue && n.Status.Conditions[1].Type == "FromOthers" {
			return nil
		}
		return fmt.Errorf("%+v", n.Status.Conditions)
	})
	web, err := r.pod(webPath)
	if err != nil {
		t.Fatal(err)
	}
	r.Must(http.MethodDelete, nodePath, nil, nil)
	r.Eventually("the node is back", func() error {
		n = corev1.Node{}
		if err := r.Do(http.MethodGet, nodePath, nil, &n); err != nil {
			return err
		}
		if n.UID == before {
			return errors.New("it is still the old one")
		}
		return nil
	})
	r.shows("the mirror belongs to the new node", webPath, func(p *corev1.Pod) bool {
		return p.UID != web.UID && p.OwnerReferences[0].UID == n.UID && isRunning(p)
	})
}

func (r *rig) testLease(t *testing.T) {
	var l coordinationv1.Lease
	r.Eventually("the lease is there", func() error { return r.Do(http.MethodGet, leasePath, nil, &l) })
	if *l.Spec.LeaseDurationSeconds != 4 || *l.Spec.HolderIdentity != "n1" {
		t.Errorf("%+v", l.Spec)
	}
	r.Eventually("it belongs to the node, which was made anew", func() error {
		var n corev1.Node
		err := errors.Join(r.Do(http.MethodGet, nodePath, nil, &n), r.Do(http.MethodGet, leasePath, nil, &l))
		if o := l.OwnerReferences; err == nil && (len(o) != 1 || o[0].Kind != "Node" || o[0].Name != "n1" || o[0].UID != n.UID) {
			err = fmt.Errorf("%+v", o)
		}
		return err
	})
	was := l.Spec.RenewTime.Time
	renewed := func() error {
		if err := r.Do(http.MethodGet, leasePath, nil, &l); err != nil {
			return err
		}
		if !l.Spec.RenewTime.After(was) {
			return errors.New("it is not renewed")
		}
		return nil
	}
	r.Eventually("the lease is renewed", renewed)
	r.Must(http.MethodDelete, leasePath, nil, nil)
	was = time.Now()
	r.Eventually("the lease is back", renewed)
}

func (r *rig) testStatus(t *testing.T, pods *board) {
	failing := with(running("web"), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].RestartCount = false, 3
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	})
	pods.put(failing)
	before := r.shows("the mirror is not ready", webPath, func(p *corev1.Pod) bool {
		return !p.Status.ContainerStatuses[0].Ready && p.Status.ContainerStatuses[0].RestartCount == 3
	})
	// Another client writes the status, with a condition of its own.
	r.Must(http.MethodPatch, webPath+"/status", map[string]any{"status": map[string]any{
		"phase": "Failed", "conditions": []corev1.PodCondition{{Type: "example.com/gate", Status: corev1.ConditionTrue}},
	}}, nil)
	pods.put(running("web"))
	r.shows("the mirror is as the pod", webPath, func(p *corev1.Pod) bool {
		return isRunning(p) && p.UID == before.UID && len(p.Status.Conditions) == 2 && p.Status.Conditions[1].Type == "example.com/gate"
	})
	// Nothing changes: nothing is sent.
	sent := r.proxy.Bytes()
	stays(t, 2*time.Second, func() error {
		if n := r.proxy.Bytes() - sent; n > 20_000 {
			return fmt.Errorf("%d bytes have passed although nothing has happened", n)
		}
		return nil
	})
}

// testTampered changes a mirror while its pod stays as it is, then the pod.
func (r *rig) testTampered(t *testing.T, pods *board) {
	before, err := r.pod(webPath)
	if err != nil {
		t.Fatal(err)
	}
	r.Must(http.MethodPatch, webPath+"/status", map[string]any{"status": map[string]any{"phase": "Failed", "podIP": "192.0.2.99", "podIPs": []corev1.PodIP{{IP: "192.0.2.99"}}}}, nil)
	r.shows("the status is that of the pod", webPath, func(p *corev1.Pod) bool {
		return isRunning(p) && p.UID == before.UID && p.Status.PodIP == "10.229.0.2"
	})
	containers := before.Spec.DeepCopy().Containers
	containers[0].Image = "example.com/evil:1"
	r.Must(http.MethodPatch, webPath, map[string]any{"spec": map[string]any{"containers": containers}}, nil)
	again := r.shows("the mirror shows the image of the pod", webPath, func(p *corev1.Pod) bool {
		return p.UID != before.UID && isRunning(p) && p.Spec.Containers[0].Image == "monopod.test/busybox:1"
	})
	pods.put(with(running("web"), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "monopod.test/busybox:2" }))
	edited := r.shows("the mirror is made anew", webPath, func(p *corev1.Pod) bool {
		return p.UID != again.UID && isRunning(p) && p.Spec.Containers[0].Image == "monopod.test/busybox:2"
	})
	if was, is := again.Annotations[mirror.AnnotationHash], edited.Annotations[mirror.AnnotationHash]; was == is || was == "" { // kubeadm upgrade waits for it
		t.Errorf("config.hash is %q, and was %q before the edit", is, was)
	}
	pods.put(running("web"))
	r.shows("the mirror is as before", webPath, func(p *corev1.Pod) bool {
		return isRunning(p) && p.Spec.Containers[0].Image == "monopod.test/busybox:1"
	})
}

func (r *rig) testDeletedMirror(t *testing.T) {
	before, err := r.pod(webPath)
	if err != nil {
		t.Fatal(err)
	}
	r.Must(http.MethodDelete, webPath, nil, nil)
	r.shows("there is a new mirror", webPath, func(p *corev1.Pod) bool { return p.UID != before.UID && isRunning(p) })
	r.Must(http.MethodDelete, webPath, map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}, nil)
	r.shows("there is a new mirror again", webPath, func(p *corev1.Pod) bool { return p.UID != before.UID && isRunning(p) })
}

func (r *rig) testReferences(t *testing.T, pods *board) {
	class := "gvisor"
	priority := int32(7)
	pods.put(with(running("app"), func(p *corev1.Pod) {
		s := &p.Spec
		s.ServiceAccountName, s.ImagePullSecrets, s.RuntimeClassName, s.PriorityClassName, s.Priority = "robot", []corev1.LocalObjectReference{{Name: "pull"}}, &class, "mine", &priority
		secret := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "pass"}
		s.Containers[0].Env = []corev1.EnvVar{{Name: "PASS", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: secret}}, {Name: "A", Value: "b"}}
		s.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
		s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "conf", MountPath: "/conf"}}
		s.Volumes = []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
			{Name: "conf", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "tls"}}}}}}},
		}
	}))
	app := r.shows("the mirror runs, without what it may not have", "/api/v1/namespaces/default/pods/app-n1", isRunning)
	if got, want := app.Annotations[mirror.AnnotationOmitted], "configmap settings, persistentvolumeclaim claim, priorityclass mine, runtimeclass gvisor, secret db, secret pull, secret tls, serviceaccount robot"; got != want {
		t.Errorf("omitted: %q", got)
	}
	if env := app.Spec.Containers[0].Env; len(env) != 1 || env[0].Value != "b" {
		t.Errorf("%+v", env)
	}
	pods.drop("default/app")
}

func (r *rig) testRefused(t *testing.T, pods *board) {
	far := with(running("far"), func(p *corev1.Pod) { p.Namespace = "later" })
	pods.put(far)
	r.Eventually("it is said why", func() error {
		if why := pods.trouble(manifests.Key{Namespace: "later", Name: "far"}); why != `create mirror pod: namespaces "later" not found` {
			return errors.New(why)
		}
		return nil
	})
	r.Must(http.MethodPost, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": "later", "labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, nil)
	r.Eventually("it is said that it is not secure enough", func() error {
		if why := pods.trouble(manifests.Key{Namespace: "later", Name: "far"}); len(why) < 50 || client.Code(errors.New(why)) != 0 {
			return errors.New(why)
		}
		return nil
	})
	r.Must(http.MethodPatch, "/api/v1/namespaces/later", map[string]any{"metadata": map[string]any{"labels": map[string]any{"pod-security.kubernetes.io/enforce": "privileged"}}}, nil)
	r.shows("the mirror is there in the end", "/api/v1/namespaces/later/pods/far-n1", isRunning)
	r.Eventually("nothing is said any more", func() error {
		if why := pods.trouble(manifests.Key{Namespace: "later", Name: "far"}); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

func (r *rig) testGone(t *testing.T, pods *board) {
	pods.mu.Lock()
	pods.partial = true
	pods.mu.Unlock()
	pods.drop("later/far")
	far := "/api/v1/namespaces/later/pods/far-n1"
	stays(t, time.Second, func() error { // it is not known that it is gone
		_, err := r.pod(far)
		return err
	})
	pods.mu.Lock()
	pods.partial = false
	pods.notifyLocked()
	pods.mu.Unlock()
	r.Eventually("its mirror is gone", func() error {
		if _, err := r.pod(far); !apitest.NotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	// A finished one that runs again in the same pod: the API server does not let its status go back.
	done := with(running("once"), func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Status.Phase = corev1.PodSucceeded
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, Reason: "Completed"}}
	})
	pods.put(done)
	once := "/api/v1/namespaces/default/pods/once-n1"
	first := r.shows("it has succeeded", once, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	pods.put(with(running("once"), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
	r.shows("it runs again", once, func(p *corev1.Pod) bool { return isRunning(p) && p.UID != first.UID })
	pods.drop("default/once")
}

func (r *rig) testOutages(t *testing.T, pods *board) {
	outage := func(what string, begin, end func()) {
		begin()
		stamp := fmt.Sprintf("192.0.2.%d", len(what)) // another status for each
		pods.put(with(running("web"), func(p *corev1.Pod) { p.Status.HostIP = stamp }))
		stays(t, 300*time.Millisecond, func() error { // nobody waits
			if _, complete := pods.Pods(); !complete {
				return errors.New("the pods are not complete")
			}
			return nil
		})
		end()
		r.shows("the mirror is as the pod after "+what, webPath, func(p *corev1.Pod) bool { return p.Status.HostIP == stamp })
	}
	outage("a restart", r.Stop, r.Start)
	outage("a server that stands still", r.Pause, r.Resume)
	outage("resets", func() { r.proxy.Set(apitest.Mode{CutAfter: 300}) }, func() { r.proxy.Set(apitest.Mode{}) })
	outage("nobody there", func() { r.proxy.Set(apitest.Mode{Refuse: true}) }, func() { r.proxy.Set(apitest.Mode{}) })
	outage("a long way there", func() { r.proxy.Set(apitest.Mode{Delay: 100 * time.Millisecond}) }, func() {})
	r.proxy.Set(apitest.Mode{})
}

// stays looks again and again whether something remains as it is.
func stays(t *testing.T, d time.Duration, look func() error) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := look(); err != nil {
			t.Error(err)
			return
		}
	}
}
