//go:build e2e

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/node/apiserver/apitest"
	"monopod/node/apiserver/mirror"
	"monopod/node/events"
)

// told reads what Bound says until it is right.
func (r *rig) told(what string, a *Agent, seen *string, right func(*manifests.Content) error) {
	r.t.Helper()
	var last error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		body, tag, err := a.Bound(r.t.Context(), *seen)
		if err != nil {
			last = err
			continue
		}
		*seen = tag
		c, err := decode.Parts("api", body, decode.Options{Source: mirror.SourceName})
		if err == nil {
			err = right(c)
		}
		if last = err; err == nil {
			return
		}
	}
	r.t.Fatalf("%s: %v", what, last)
}

// data is the value of an object of a content.
func data(c *manifests.Content, kind, prefix, key string) string {
	for _, o := range c.Objects {
		switch v := o.Object.(type) {
		case *corev1.ConfigMap:
			if kind == "ConfigMap" && strings.HasPrefix(v.Name, prefix) {
				return v.Data[key]
			}
		case *corev1.Secret:
			if kind == "Secret" && strings.HasPrefix(v.Name, prefix) {
				return string(v.Data[key])
			}
		}
	}
	return ""
}

func TestPodsThatARealAPIServerBindsHere(t *testing.T) {
	r := newRig(t)
	pods := newBoard(running("web"))
	cfg := config(t, r.Kubeconfig(r.proxy.Address(), apitest.Node("n1")), pods)
	cfg.Source, cfg.Taints = true, nil
	recorder := events.New(events.Config{Dir: filepath.Join(t.TempDir(), "events"), Node: "n1"})
	cfg.Events = recorder
	a, stop := startAgent(t, cfg)
	seen := ""
	r.told("nothing is bound here", a, &seen, func(c *manifests.Content) error {
		if len(c.Pods)+len(c.Objects) > 0 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	r.shows("pods of files have their mirrors", webPath, isRunning)

	p := r.Bind("n1", "job")
	var pod *corev1.Pod
	r.told("the pod with what it needs", a, &seen, func(c *manifests.Content) error {
		if len(c.Pods) != 1 || c.Pods[0].Object.UID != p.UID || data(c, "ConfigMap", "settings", "color") != "blue" || data(c, "Secret", "db", "pass") != "secret" {
			return fmt.Errorf("%+v %+v", c.Pods, c.Objects)
		}
		pod = c.Pods[0].Object
		token := data(c, "Secret", "monopod-token-", tokenKey)
		who, ok, err := a.Webhook().Authenticate(t.Context(), token)
		if err != nil || !ok || who.Username != "system:serviceaccount:default:robot" || who.Extra["authentication.kubernetes.io/pod-name"][0] != "job" {
			return fmt.Errorf("the token is of %+v: %w", who, err)
		}
		return nil
	})
	// It runs: its status is its own, there is no mirror, and its events are about it.
	path := "/api/v1/namespaces/default/pods/job"
	local := with(running("job"), func(l *corev1.Pod) {
		l.Spec, l.UID = pod.Spec, p.UID
		l.Annotations = map[string]string{mirror.AnnotationSource: mirror.SourceName}
	})
	pods.put(local)
	r.shows("its status", path, func(got *corev1.Pod) bool { return isRunning(got) && got.UID == p.UID })
	recorder.Event(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "job", UID: p.UID}, corev1.EventTypeNormal, "Started", "it has started")
	r.Eventually("its events", func() error {
		var list corev1.EventList
		r.Must(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid%3D"+string(p.UID), nil, &list)
		if len(list.Items) != 1 || list.Items[0].InvolvedObject.Name != "job" {
			return fmt.Errorf("%+v", list.Items)
		}
		return nil
	})
	// The server goes and comes: what is bound is not known, then it is the same.
	r.proxy.Set(apitest.Mode{Refuse: true})
	for _, want := range []bool{false, true} {
		r.Eventually("it says so", func() error {
			if _, _, err := a.Bound(t.Context(), seen); err == nil || errors.Is(err, ErrSame) != want {
				return fmt.Errorf("it says %w", err)
			}
			return nil
		})
		r.proxy.Set(apitest.Mode{})
	}
	// A delete takes it off the list at once, and off the server when it has stopped here.
	r.Must(http.MethodDelete, path, nil, nil)
	r.told("it is not wanted any more", a, &seen, func(c *manifests.Content) error {
		if len(c.Pods) > 0 {
			return errors.New("it is")
		}
		return nil
	})
	stays(t, time.Second, func() error {
		_, err := r.pod(path)
		return err
	})
	pods.drop("default/job")
	r.Eventually("it is gone", func() error {
		if _, err := r.pod(path); !apitest.NotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if _, err := r.pod("/api/v1/namespaces/default/pods/job-n1"); !apitest.NotFound(err) {
		t.Errorf("it had a mirror: %v", err)
	}
	stop()
	// Without the source, pods that are bound here are ignored.
	other := r.Bind("n1", "other")
	r.Must(http.MethodDelete, "/api/v1/namespaces/default/pods/other", nil, nil)
	cfg.Source = false
	_, stop = startAgent(t, cfg)
	pods.put(with(running("web"), func(p *corev1.Pod) { p.Status.HostIP = "192.0.2.9" }))
	r.shows("it reports", webPath, func(p *corev1.Pod) bool { return p.Status.HostIP == "192.0.2.9" })
	if got, err := r.pod("/api/v1/namespaces/default/pods/other"); err != nil || got.UID != other.UID || got.Status.Phase != corev1.PodPending {
		t.Errorf("%+v %v", got, err)
	}
	stop()
}

// A finalizer keeps what would be gone in the same moment: that is how the last status can be read.
func TestTheFinalStatusReachesARealAPIServerBeforeThePodIsGone(t *testing.T) {
	r := newRig(t)
	pods := newBoard()
	cfg := config(t, r.Kubeconfig(r.proxy.Address(), apitest.Node("n1")), pods)
	cfg.Source, cfg.Taints = true, nil
	a, stop := startAgent(t, cfg)
	defer stop()
	for name, tt := range map[string]struct {
		last   func(*corev1.Pod) *corev1.Pod
		phase  corev1.PodPhase
		code   int32
		reason string
	}{
		"failed":    {func(p *corev1.Pod) *corev1.Pod { return endedPod(p, 3) }, corev1.PodFailed, 3, "Completed"},
		"succeeded": {func(p *corev1.Pod) *corev1.Pod { return endedPod(p, 0) }, corev1.PodSucceeded, 0, "Completed"},
		"unseen":    {nil, corev1.PodFailed, mirror.ExitStatusUnknown, mirror.ReasonStatusUnknown},
	} {
		path := "/api/v1/namespaces/default/pods/" + name
		p := r.Bind("n1", name, func(p *corev1.Pod) {
			p.Finalizers, p.Spec.RestartPolicy = []string{"monopod.test/kept"}, corev1.RestartPolicyNever
		})
		local := with(running(name), func(l *corev1.Pod) {
			l.UID, l.Spec, l.Generation = p.UID, p.Spec, p.Generation
			l.Annotations = map[string]string{mirror.AnnotationSource: mirror.SourceName}
			l.Status.ContainerStatuses[0].Name = p.Spec.Containers[0].Name
		})
		pods.put(local)
		r.shows("it runs", path, func(got *corev1.Pod) bool { return isRunning(got) && got.Status.ObservedGeneration == got.Generation })
		r.Must(http.MethodDelete, path, nil, nil)
		if tt.last != nil {
			a.Gone(tt.last(local))
		}
		pods.drop("default/" + name)
		r.shows(name+": how it ended, and that it is gone here", path, func(got *corev1.Pod) bool {
			end := got.Status.ContainerStatuses[0].State.Terminated
			return *got.DeletionGracePeriodSeconds == 0 && got.Status.Phase == tt.phase && end != nil && end.ExitCode == tt.code && end.Reason == tt.reason && got.Status.ObservedGeneration == got.Generation
		})
		// What comes too late does not take that back: the server would refuse it.
		pods.put(with(local, func(l *corev1.Pod) { l.Status.Message = "late" }))
		stays(t, time.Second, func() error {
			got, err := r.pod(path)
			if err == nil && (got.Status.Phase != tt.phase || got.Status.ContainerStatuses[0].State.Terminated == nil) {
				err = fmt.Errorf("it is %+v", got.Status)
			}
			return err
		})
		pods.drop("default/" + name)
		if why := pods.trouble(manifests.Key{Namespace: "default", Name: name}); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		r.Must(http.MethodPatch, path, map[string]any{"metadata": map[string]any{"finalizers": nil}}, nil)
	}
}

func TestARealAPIServerAddsEphemeralContainers(t *testing.T) {
	r := newRig(t)
	pods := newBoard()
	cfg := config(t, r.Kubeconfig(r.proxy.Address(), apitest.Node("n1")), pods)
	cfg.Source, cfg.Taints = true, nil
	cfg.Debug = func(_ context.Context, p *corev1.Pod, e corev1.EphemeralContainer) error {
		if e.Image == "never" {
			return &RejectedError{mirror.ReasonNotSupported, "no such thing"}
		}
		pods.put(with(p.DeepCopy(), func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, e)
			p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{
				Name: e.Name, Image: e.Image, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, Reason: "Error"}},
			})
		}))
		return nil
	}
	_, stop := startAgent(t, cfg)
	defer stop()
	path := "/api/v1/namespaces/default/pods/job"
	p := r.Bind("n1", "job")
	pods.put(with(running("job"), func(l *corev1.Pod) {
		l.UID, l.Spec, l.Generation = p.UID, p.Spec, p.Generation
		l.Annotations = map[string]string{mirror.AnnotationSource: mirror.SourceName}
		l.Status.StartTime = &metav1.Time{Time: time.Now()}
		l.Status.ContainerStatuses[0].Name = p.Spec.Containers[0].Name
	}))
	got := r.shows("it runs", path, isRunning)
	got.Spec.EphemeralContainers = []corev1.EphemeralContainer{debugger("dbg", "busybox"), debugger("bad", "never")}
	got.Spec.EphemeralContainers[0].TargetContainerName = p.Spec.Containers[0].Name
	got.ResourceVersion = ""
	r.Must(http.MethodPut, path+"/ephemeralcontainers", got, nil)
	r.shows("one ran, and the other never does", path, func(got *corev1.Pod) bool {
		all := got.Status.EphemeralContainerStatuses
		return len(all) == 2 && all[0].Name == "dbg" && all[0].State.Terminated != nil && all[0].State.Terminated.ExitCode == 7 &&
			all[1].Name == "bad" && all[1].State.Waiting != nil && strings.Contains(all[1].State.Waiting.Message, "no such thing")
	})
}
