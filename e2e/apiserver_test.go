//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/apitest"
)

const mirrors = "/api/v1/namespaces/default/pods/"

// idle is a pod that does nothing.
func idle(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: '" + image + "', imagePullPolicy: Never, command: [sleep, '9999']}]}\n"
}

// TestTheAPIServerIsToldAndChangesNothing runs an agent that reports to a real API server.
func TestTheAPIServerIsToldAndChangesNothing(t *testing.T) {
	s := apitest.Start(t, apitest.Options{})
	proxy := apitest.NewProxy(t, s.Address)
	in := newInstance(t, "kubeconfig: "+s.Kubeconfig(proxy.Address(), apitest.Node("e2e")), "nodeLabels: {site: lab}", "nodeLeaseDurationSeconds: 4", "shutdownGracePeriod: 30s")
	in.put("web", idle("web"))
	in.start()
	shown := func(name string, right func(*corev1.Pod) bool) *corev1.Pod {
		t.Helper()
		var p corev1.Pod
		s.Eventually("the API server shows "+name, func() error {
			p = corev1.Pod{}
			if err := s.Do(http.MethodGet, mirrors+name, nil, &p); err != nil {
				return err
			}
			if !right(&p) {
				return fmt.Errorf("%+v", p.Status)
			}
			return nil
		})
		return &p
	}
	ready := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready
	}
	first := shown("web-e2e", ready)
	container := in.ready("web").Status.ContainerStatuses[0].ContainerID
	if got := first.Status.ContainerStatuses[0].ContainerID; got != container {
		t.Errorf("it shows container %s, there is %s", got, container)
	}
	untouched := in.untouched("web")
	s.Must(http.MethodDelete, mirrors+"web-e2e", nil, nil)
	shown("web-e2e", func(p *corev1.Pod) bool { return p.UID != first.UID && ready(p) })
	untouched("its mirror was deleted")
	var node corev1.Node
	s.Eventually("the node is ready", func() error {
		s.Must(http.MethodGet, "/api/v1/nodes/e2e", nil, &node)
		if last := node.Status.Conditions[len(node.Status.Conditions)-1]; last.Type != corev1.NodeReady || last.Status != corev1.ConditionTrue || node.Labels["site"] != "lab" {
			return fmt.Errorf("%+v %v", last, node.Labels)
		}
		return nil
	})
	s.Must(http.MethodDelete, "/api/v1/nodes/e2e", nil, nil)
	s.Eventually("the node is back", func() error { return s.Do(http.MethodGet, "/api/v1/nodes/e2e", nil, nil) })
	untouched("the node was deleted")
	s.Eventually("what happened is told", func() error {
		var list corev1.EventList
		s.Must(http.MethodGet, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dweb-e2e,reason%3DStarted", nil, &list)
		if len(list.Items) != 1 || string(list.Items[0].InvolvedObject.UID) != first.Annotations[corev1.MirrorPodAnnotationKey] {
			return fmt.Errorf("%+v", list.Items)
		}
		return nil
	})
	// Pods start and stop while the API server is silent or down, as fast as usual.
	for what, mode := range map[string]apitest.Mode{"silent": {Silent: true}, "gone": {Refuse: true}, "cut": {CutAfter: 500}} {
		proxy.Set(mode)
		name := "while-" + what
		began := time.Now()
		in.put(name, idle(name))
		in.ready(name)
		t.Logf("%s ran after %v", name, time.Since(began))
		proxy.Set(apitest.Mode{})
		shown(name+"-e2e", ready)
		in.drop(name)
		s.Eventually("its mirror goes", func() error {
			if err := s.Do(http.MethodGet, mirrors+name+"-e2e", nil, nil); !apitest.NotFound(err) {
				return errors.New("it is there")
			}
			return nil
		})
	}
	untouched("all that")
	testNodeFacts(t, s, in)
	if out, err := in.run("events"); err != nil || !strings.Contains(out, "APIServerReachable") {
		t.Errorf("%v\n%s", err, out)
	}
}

// testNodeFacts changes facts that the Node shows, and finally shuts the machine down.
func testNodeFacts(t *testing.T, s *apitest.Server, in *instance) {
	t.Helper()
	shows := func(what string, right func(*corev1.Node) bool) {
		t.Helper()
		s.Eventually("the node shows "+what, func() error {
			var n corev1.Node
			if err := s.Do(http.MethodGet, "/api/v1/nodes/e2e", nil, &n); err != nil {
				return err
			}
			if !right(&n) {
				return fmt.Errorf("%+v %+v", n.Spec, n.Status)
			}
			return nil
		})
	}
	does := func(args ...string) {
		t.Helper()
		if out, err := in.run(args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	conditions := func(n *corev1.Node) string {
		var all []string
		for _, c := range n.Status.Conditions {
			all = append(all, string(c.Type)+"="+string(c.Status))
		}
		return strings.Join(all, " ")
	}
	shows("its conditions", func(n *corev1.Node) bool {
		return conditions(n) == "MemoryPressure=False DiskPressure=False PIDPressure=False Ready=True" && !n.Status.Allocatable.Memory().IsZero()
	})
	shows("its images", func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Images, func(i corev1.ContainerImage) bool { return i.SizeBytes > 0 && slices.Contains(i.Names, image) })
	})
	does("cordon")
	shows("that it is cordoned", func(n *corev1.Node) bool { return n.Spec.Unschedulable })
	does("uncordon")
	shows("that it is not", func(n *corev1.Node) bool { return !n.Spec.Unschedulable })
	if err := in.cmd.Process.Signal(syscall.SIGPWR); err != nil {
		t.Fatal(err)
	}
	shows("that it goes down", func(n *corev1.Node) bool {
		c := n.Status.Conditions[len(n.Status.Conditions)-1]
		return c.Status == corev1.ConditionFalse && c.Message == "node is shutting down"
	})
	does("undrain")
	shows("that it does not", func(n *corev1.Node) bool { return strings.HasSuffix(conditions(n), "Ready=True") })
	in.ready("web")
}
