//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// probedPorts are the ports of e2e/probed in a pod network of its own.
const probedPorts = "8080 8443 9000 9001"

// probedPod is a pod of one container that runs e2e/probed with the given probes; a file on the host controls its health.
func (in *instance) probedPod(name, probes, ports, more, env string) string {
	in.t.Helper()
	dir := filepath.Join(in.dir, "probed", name)
	port := strings.Fields(ports)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		in.t.Fatal(err)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
%s
  containers:
  - name: c
    image: %s
    command: [/bin-of-test/probed, /state/state, serve, "http:%[7]s", "https:%[8]s", "tcp:%[9]s", "grpc:%[4]s"]
    env: [{name: FILE, value: /state/state}%[5]s]
    ports: [{name: web, containerPort: %[7]s}, {name: secure, containerPort: %[8]s}, {name: raw, containerPort: %[9]s}]
%[6]s
    volumeMounts: [{name: bin, mountPath: /bin-of-test, readOnly: true}, {name: state, mountPath: /state}]
  volumes:
  - {name: bin, hostPath: {path: %[10]s}}
  - {name: state, hostPath: {path: %[11]s}}
`, name, more, image, port[3], env, probes, port[0], port[1], port[2], in.bin, dir)
}

// turn writes the health of a pod's server.
func (in *instance) turn(name, state string) {
	in.t.Helper()
	in.write(filepath.Join(in.dir, "probed", name, "state"), state)
}

// handlers are the kinds of probe handlers.
var handlers = map[string]string{
	"exec": "exec: {command: [/bin-of-test/probed, $(FILE)]}",
	"http": "httpGet: {path: /healthz, port: web, httpHeaders: [{name: X-Probe, value: \"1\"}]}",
	"h2c":  "httpGet: {path: /http2, port: web, protocol: HTTP2}",
	"tcp":  "tcpSocket: {port: raw}",
	"grpc": "grpc: {port: 9001}",
}

func restarts(p corev1.Pod) int32 { return p.Status.ContainerStatuses[0].RestartCount }

// TestEachProbeByEachHandler runs fifteen pods concurrently.
func TestEachProbeByEachHandler(t *testing.T) {
	in := newInstance(t)
	in.start()
	each := func(do func(handler string)) {
		for h := range handlers {
			do(h)
		}
	}
	for h, ask := range handlers {
		const often = "periodSeconds: 1, timeoutSeconds: 60, failureThreshold: "
		started := "    startupProbe: {" + ask + ", " + often + "1000}\n" // a server takes its time until it listens
		for kind, probes := range map[string]string{
			"startup":   started + "    livenessProbe: {" + ask + ", " + often + "1}",
			"liveness":  started + "    livenessProbe: {" + ask + ", " + often + "2}",
			"readiness": "    readinessProbe: {" + ask + ", " + often + "1}",
		} {
			name := kind + "-" + h
			text := in.probedPod(name, probes, probedPorts, "", "")
			in.turn(name, map[bool]string{true: "ok", false: "not yet"}[kind == "liveness"])
			in.put(name, text)
		}
	}
	running := func(p corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning && p.Status.ContainerStatuses[0].State.Running != nil
	}
	first := map[string]string{}
	t.Run("a slow starter is given time", func(t *testing.T) {
		each(func(h string) {
			p := in.pod("startup-"+h, "runs and has not started", func(p corev1.Pod) bool {
				return running(p) && !*p.Status.ContainerStatuses[0].Started && !isReady(p)
			})
			in.eventually("its startup probe has failed more than once", func() error {
				out, err := in.run("describe", "pod", p.Name)
				if err == nil && (!strings.Contains(out, "failed in a row (1000 count)") || !strings.Contains(out, "next in")) {
					err = fmt.Errorf("%s", out)
				}
				return err
			})
			in.turn(p.Name, "ok")
			if p = in.ready(p.Name); restarts(p) != 0 || !*p.Status.ContainerStatuses[0].Started {
				t.Errorf("%s: %s", p.Name, brief(p))
			}
		})
	})
	t.Run("readiness changes the condition and nothing else", func(t *testing.T) {
		each(func(h string) {
			p := in.pod("readiness-"+h, "runs and is not ready", func(p corev1.Pod) bool { return running(p) && !isReady(p) })
			first[p.Name] = containerID(p, "c")
		})
		for _, state := range []string{"ok", "busy", "ok"} {
			each(func(h string) { in.turn("readiness-"+h, state) })
			each(func(h string) {
				p := in.pod("readiness-"+h, "is as ready as it says: "+state, func(p corev1.Pod) bool { return isReady(p) == (state == "ok") })
				if containerID(p, "c") != first[p.Name] || restarts(p) != 0 {
					t.Errorf("%s was restarted: %s", p.Name, brief(p))
				}
			})
		}
	})
	t.Run("liveness restarts", func(t *testing.T) {
		each(func(h string) {
			if p := in.ready("liveness-" + h); restarts(p) != 0 {
				t.Errorf("%s was restarted though it is well: %s\n%s", p.Name, brief(p), in.log.tail())
			}
		})
		each(func(h string) { in.turn("liveness-"+h, "deadlock") })
		each(func(h string) {
			in.pod("liveness-"+h, "is restarted", func(p corev1.Pod) bool { return restarts(p) > 0 })
			in.turn("liveness-"+h, "ok")
		})
		each(func(h string) { in.ready("liveness-" + h) })
	})
	t.Run("what was ready stays ready over a kill -9 of the agent", func(t *testing.T) {
		in.kill9()
		in.start()
		each(func(h string) {
			p := in.pod("readiness-"+h, "is seen again", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
			if !isReady(p) || containerID(p, "c") != first[p.Name] {
				t.Errorf("%s: %s", p.Name, brief(p))
			}
			in.turn(p.Name, "busy")
			in.pod(p.Name, "is asked by the next agent as well", func(p corev1.Pod) bool { return !isReady(p) })
		})
	})
}

// TestALivenessProbeHasAGracePeriodOfItsOwn: the pod's own grace period is longer than the timeout of the test.
func TestALivenessProbeHasAGracePeriodOfItsOwn(t *testing.T) {
	in := newInstance(t)
	in.start()
	probe := handlers["http"] + ", periodSeconds: 1, timeoutSeconds: 60, failureThreshold: "
	probes := "    startupProbe: {" + probe + "1000}\n    livenessProbe: {" + probe + "2, terminationGracePeriodSeconds: 1}"
	text := in.probedPod("stubborn", probes, probedPorts, "", ", {name: STUBBORN, value: \"1\"}")
	in.turn("stubborn", "ok")
	in.put("stubborn", strings.Replace(text, "terminationGracePeriodSeconds: 2", "terminationGracePeriodSeconds: 600", 1))
	in.ready("stubborn")
	in.turn("stubborn", "deadlock")
	p := in.pod("stubborn", "is restarted", func(p corev1.Pod) bool { return restarts(p) > 0 })
	if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 137 {
		t.Errorf("%s", brief(p))
	}
	if !in.log.contains("Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 503") {
		t.Error("the log does not say why")
	}
	// This makes the cleanup of the test faster, too.
	in.put("stubborn", text)
	in.pod("stubborn", "has a short grace period", func(p corev1.Pod) bool { return *p.Spec.TerminationGracePeriodSeconds == 2 })
}

// TestHTTPSOnLoopbackWithASelfSignedCertificate uses a probe like those of kubeadm's manifests: hostNetwork, 127.0.0.1, a port name.
func TestHTTPSOnLoopbackWithASelfSignedCertificate(t *testing.T) {
	in := newInstance(t)
	in.start()
	four := fmt.Sprint(ports.Take(t), ports.Take(t), ports.Take(t), ports.Take(t))
	https := "httpGet: {host: 127.0.0.1, path: /livez, port: secure, scheme: HTTPS}, periodSeconds: 1, timeoutSeconds: 60"
	probes := "    startupProbe: {" + https + ", failureThreshold: 1000}\n    livenessProbe: {" + https + ", failureThreshold: 8}\n    readinessProbe: {" + https + ", failureThreshold: 3}"
	text := in.probedPod("apiserver", probes, four, "  hostNetwork: true", "")
	in.turn("apiserver", "ok")
	in.put("apiserver", text)
	p := in.ready("apiserver")
	if restarts(p) != 0 {
		t.Error(brief(p))
	}
	in.eventually("it was asked by a probe", func() error {
		out, err := in.run("logs", "apiserver")
		if err == nil && !strings.Contains(out, "GET /livez kube-probe/") {
			err = fmt.Errorf("log is %q", out)
		}
		return err
	})
	in.turn("apiserver", "no")
	in.pod("apiserver", "is not ready", func(p corev1.Pod) bool { return !isReady(p) })
}

// TestReadinessGatesAreWaitedFor: no component here sets their conditions.
func TestReadinessGatesAreWaitedFor(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("gated", strings.Replace(sleeper("gated", ":"), "spec:", "spec:\n  readinessGates: [{conditionType: example.com/gate}]", 1))
	in.pod("gated", "has ready containers, and is not ready for want of its gate", func(p corev1.Pod) bool {
		ready, gated := false, false
		for _, c := range p.Status.Conditions {
			ready = ready || c.Type == corev1.ContainersReady && c.Status == corev1.ConditionTrue
			gated = gated || c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.Reason == "ReadinessGatesNotReady"
		}
		return ready && gated
	})
}
