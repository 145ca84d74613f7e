//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/node/apiserver/apitest"
)

// TestPodsThatTheAPIServerBindsHere runs an agent with a real API server as one more source.
func TestPodsThatTheAPIServerBindsHere(t *testing.T) {
	s := apitest.Start(t, apitest.Options{})
	proxy := apitest.NewProxy(t, s.Address)
	in := newInstance(t, "kubeconfig: "+s.Kubeconfig(proxy.Address(), apitest.Node("e2e")), "apiServerPods: true")
	in.put("taken", idle("taken"))
	in.start()
	s.Eventually("the node takes pods", func() error {
		var n corev1.Node
		if err := s.Do(http.MethodGet, "/api/v1/nodes/e2e", nil, &n); err != nil {
			return err
		}
		for _, taint := range n.Spec.Taints { // the API server has its own
			if strings.HasPrefix(taint.Key, "monopod") {
				return fmt.Errorf("%+v", n.Spec.Taints)
			}
		}
		return nil
	})
	in.put("lost", strings.Replace(idle("lost"), "name: lost", "name: lost, namespace: nowhere", 1))
	in.eventually("why says what the API server refuses", func() error {
		out, err := in.run("why", "lost", "-n", "nowhere")
		if !strings.Contains(out, `the API server does not show its current status: create mirror pod: namespaces "nowhere" not found`) {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
	in.ready("taken")
	untouched := in.untouched("taken")
	ours := func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }
	bound := s.Bind("e2e", "bound", ours)
	taken := s.Bind("e2e", "taken", ours)
	local := in.ready("bound")
	if local.UID != bound.UID {
		t.Errorf("it has the uid %s, over there %s", local.UID, bound.UID)
	}
	var there corev1.Pod
	s.Eventually("its status is told", func() error {
		s.Must(http.MethodGet, mirrors+"bound", nil, &there)
		if there.Status.Phase != corev1.PodRunning || there.Status.PodIP == "" || len(there.Status.ContainerStatuses) == 0 || !there.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("%+v", there.Status)
		}
		return nil
	})
	in.eventually("it has its ConfigMap, its Secret and its token", func() error {
		out, err := in.run("logs", "bound")
		if f := strings.Fields(out); err != nil || len(f) != 3 || f[0] != "blue" || f[1] != "secret" || len(f[2]) < 3 {
			return fmt.Errorf("%q %w", out, err)
		}
		return nil
	})
	secretsAreOurs(t, filepath.Join(in.dir, "root"))
	s.Bind("e2e", "disk", ours, func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "disk", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.example.com"}}})
	})
	refused := func() {
		t.Helper()
		saysWhy(t, s, "disk", "NotSupported", "monopod cannot run this pod: spec.volumes[2].csi: not supported")
		saysWhy(t, s, "taken", "NameTaken", "a manifest on node e2e already defines a pod of this name")
		if out, err := in.run("why", "disk"); err != nil || !strings.Contains(out, "spec.volumes[2].csi: not supported") {
			t.Errorf("why disk: %v\n%s", err, out)
		}
		in.tells("apiserver", model.InputConflict, "pod default/disk: spec.volumes[2].csi: not supported")
	}
	refused()
	// The file of a Secret follows its changes.
	s.Must(http.MethodPatch, "/api/v1/namespaces/default/secrets/db", map[string]any{"stringData": map[string]any{"pass": "other"}}, nil)

	both := in.untouched("taken", "bound")
	s.Stop()
	in.kill9()
	in.start()
	in.ready("bound")
	both("the API server and monopod were killed")
	in.tells("apiserver", "Unreachable", "")
	in.put("later", idle("later"))
	in.ready("later")
	s.Start()
	in.eventually("the other Secret is there", func() error {
		if out, err := in.run("exec", "bound", "--", "cat", "/db/pass"); err != nil || out != "other" {
			return fmt.Errorf("%q %w", out, err)
		}
		return nil
	})
	both("they came back")
	refused()
	testWhatItNeedsIsGone(t, s, in)
	both("what it needs was deleted")
	testGraceOfDeletion(t, s, in, ours)
	if err := s.Do(http.MethodGet, mirrors+"bound-e2e", nil, nil); !apitest.NotFound(err) {
		t.Errorf("it has a mirror: %v", err)
	}
	s.Must(http.MethodDelete, mirrors+"bound", nil, nil)
	s.Must(http.MethodDelete, mirrors+"taken", nil, nil)
	s.Must(http.MethodDelete, mirrors+"disk", nil, nil)
	in.gone("bound")
	s.Eventually("they are gone over there", func() error {
		for _, name := range []string{"bound", "taken", "disk"} {
			if err := s.Do(http.MethodGet, mirrors+name, nil, nil); !apitest.NotFound(err) {
				return fmt.Errorf("%s is there: %w", name, err)
			}
		}
		return nil
	})
	untouched("a pod of its name came and went over there")
	if p := in.ready("taken"); p.UID == taken.UID {
		t.Error("the pod of the file is that of the API server")
	}
}

// saysWhy waits until the API server shows the reason why a pod does not run, in its status and in an event.
func saysWhy(t *testing.T, s *apitest.Server, name, reason, message string) {
	t.Helper()
	s.Eventually("it is said why "+name+" does not run", func() error {
		var p corev1.Pod
		var list corev1.EventList
		s.Must(http.MethodGet, mirrors+name, nil, &p)
		if st := p.Status; st.Phase != corev1.PodPending || st.Reason != reason || !strings.Contains(st.Message, message) || isReady(p) {
			return fmt.Errorf("%+v", st)
		}
		s.Must(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3D"+string(p.UID), nil, &list)
		if len(list.Items) == 0 || list.Items[0].Type != corev1.EventTypeWarning || list.Items[0].Reason != reason || !strings.Contains(list.Items[0].Message, message) {
			return fmt.Errorf("%+v", list.Items)
		}
		return nil
	})
}

// testWhatItNeedsIsGone deletes the objects that the pod `bound` refers to, and creates them again.
func testWhatItNeedsIsGone(t *testing.T, s *apitest.Server, in *instance) {
	t.Helper()
	const namespace = "/api/v1/namespaces/default"
	needs := []string{"/secrets/db", "/configmaps/settings", "/serviceaccounts/robot"}
	for _, path := range needs {
		s.Must(http.MethodDelete, namespace+path, nil, nil)
	}
	in.kill9() // else it would be asked for within a minute
	in.start()
	in.eventually("it is known that they are gone", func() error {
		r, err := in.input("apiserver")
		if err == nil && (!r.FromDisk.IsZero() || len(r.Objects) > 0 || !slices.Contains(r.Pods, "default/bound")) {
			err = fmt.Errorf("it is %+v", r)
		}
		return err
	})
	in.eventually("why says so", func() error {
		out, err := in.run("why", "bound")
		if err == nil && !strings.Contains(out, "the pod uses Secret db, which no source defines") {
			err = errors.New(out)
		}
		return err
	})
	in.ready("bound")
}

// testGraceOfDeletion deletes pods that would take ten minutes to stop.
func testGraceOfDeletion(t *testing.T, s *apitest.Server, in *instance, ours func(*corev1.Pod)) {
	t.Helper()
	slow := func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(600))
		p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"}
	}
	graceful := func(seconds int) map[string]any { return map[string]any{"gracePeriodSeconds": seconds} }
	s.Bind("e2e", "slow", ours, slow)
	s.Bind("e2e", "forced", ours, slow)
	in.ready("slow")
	in.ready("forced")
	s.Must(http.MethodDelete, mirrors+"slow", nil, nil)
	in.pod("slow", "is stopping", func(p corev1.Pod) bool { return p.DeletionTimestamp != nil && *p.DeletionGracePeriodSeconds == 600 })
	s.Must(http.MethodDelete, mirrors+"slow", graceful(1), nil)
	s.Must(http.MethodDelete, mirrors+"forced", graceful(0), nil)
	in.gone("slow")
	in.gone("forced")
	s.Eventually("it is gone over there", func() error {
		if err := s.Do(http.MethodGet, mirrors+"slow", nil, nil); !apitest.NotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

// secretsAreOurs checks that no file with a Secret is readable by other users.
func secretsAreOurs(t *testing.T, root string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && (!d.Type().IsRegular() || d.Name() != "answer") {
			return nil
		}
		if err != nil {
			return err
		}
		found++
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", path, st.Mode(), err)
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d copies: %v", found, err)
	}
}

// controlled are a DaemonSet and a Job whose pods record their starts in the directory DIR.
const controlled = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      volumes: [{name: notes, hostPath: {path: DIR}}]
      containers:
      - {name: c, image: IMAGE, imagePullPolicy: Never, volumeMounts: [{name: notes, mountPath: /notes}], command: [sh, -c, 'echo "$VERSION" >>/notes/agent; exec sleep 9999'], env: [{name: VERSION, value: first}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      volumes: [{name: notes, hostPath: {path: DIR}}]
      containers:
      - {name: c, image: IMAGE, imagePullPolicy: Never, volumeMounts: [{name: notes, mountPath: /notes}], command: [sh, -c, 'echo done >>/notes/once']}
`

// TestControllersOfTheAPIServerRunPodsHere: a DaemonSet and a Job of a real kube-controller-manager, bound by a real kube-scheduler.
func TestControllersOfTheAPIServerRunPodsHere(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, apitest.Options{})
	s.RunControllers()
	settings := []string{"kubeconfig: " + s.Kubeconfig(s.Address, apitest.Node("e2e")), "apiServerPods: true"}
	in := newInstance(t, settings...)
	in.start()
	admin := as(t, s, apitest.Request{Name: "admin", Groups: []string{"system:masters"}})
	notes := t.TempDir()
	noted := func(when, name, want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(notes, name)); string(b) != want {
			t.Errorf("%s: %s has noted %q, want %q: %v", when, name, b, want, err)
		}
	}
	does := func(in string, args ...string) {
		t.Helper()
		if out, errs, code := admin.try(in, args...); code != 0 {
			t.Fatalf("kubectl %v: exit code %d\n%s%s\n%s", args, code, out, errs, s.Log())
		}
	}
	complete := []string{"wait", "--for=condition=complete", "job/once", "--timeout=90s"}
	rolledOut := []string{"rollout", "status", "daemonset/agent", "--timeout=90s"}
	does(strings.NewReplacer("DIR", notes, "IMAGE", image).Replace(controlled), "apply", "-f", "-")
	does("", complete...)
	does("", rolledOut...)
	agent := in.named("agent-")
	untouched := in.untouched(agent)
	in.kill9()
	in.start()
	untouched("monopod was killed")
	noted("after a restart", "once", "done\n")

	does("", "set", "env", "daemonset/agent", "VERSION=second")
	does("", rolledOut...)
	in.gone(agent)
	noted("after an edit", "agent", "first\nsecond\n")

	// The same node with an empty disk: desired pods run, completed ones do not run again.
	if err := in.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	fresh := newInstance(t, settings...)
	fresh.start()
	fresh.ready(fresh.named("agent-"))
	noted("on a new disk", "once", "done\n")
	noted("on a new disk", "agent", "first\nsecond\nsecond\n")
	if all, err := fresh.pods(); err != nil || len(all) != 1 {
		t.Errorf("%d pods: %v", len(all), err)
	}
	does("", complete...)
	does("", "delete", "daemonset/agent", "job/once", "--timeout=90s")
	s.Eventually("their pods are gone", func() error {
		out, errs, code := admin.try("", "get", "pods", "-o", "name")
		if code != 0 || out != "" {
			return fmt.Errorf("exit code %d: %s%s", code, out, errs)
		}
		return nil
	})
}

// named waits for a pod whose name has the prefix, and returns it.
func (in *instance) named(prefix string) (name string) {
	in.t.Helper()
	in.eventually("there is a pod "+prefix, func() error {
		all, err := in.pods()
		for name = range all {
			if strings.HasPrefix(name, prefix) {
				return nil
			}
		}
		return fmt.Errorf("there are %d pods: %w", len(all), err)
	})
	return name
}
