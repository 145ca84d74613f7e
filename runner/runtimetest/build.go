package runtimetest

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"monopod/manifests"
	"monopod/runner"
)

// NewPod returns a defaulted pod with the given containers.
func NewPod(name string, containers ...corev1.Container) *manifests.Pod {
	return &manifests.Pod{
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PodSpec{
				RestartPolicy:                 corev1.RestartPolicyAlways,
				DNSPolicy:                     corev1.DNSClusterFirst,
				TerminationGracePeriodSeconds: ptr.To[int64](30),
				SecurityContext:               &corev1.PodSecurityContext{},
				Containers:                    containers,
			},
		},
		Origin: manifests.Origin{Source: "file", File: "/m/" + name + ".yaml", Line: 1},
	}
}

// NewContainer returns a container that runs a script of Fake.
func NewContainer(name, script string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "busybox:1", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", script},
	}
}

// Edited returns a changed copy of a pod.
func Edited(p *manifests.Pod, change func(*corev1.Pod)) *manifests.Pod {
	q := &manifests.Pod{Object: p.Object.DeepCopy(), Origin: p.Origin}
	change(q.Object)
	return q
}

// KeyOf is the key of a pod that NewPod made.
func KeyOf(name string) manifests.Key { return manifests.Key{Namespace: "default", Name: name} }

// At is a time so many seconds after the beginning of what a test observes.
func At(seconds int) time.Time {
	return time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

// Running is a container as observed, with its start by At.
func Running(id, name string, started int) runner.Container {
	return runner.Container{ID: id, Name: name, SandboxID: "s", State: runner.ContainerRunning, StartedAt: At(started), Image: "busybox:1", ImageID: "sha256:1"}
}

// Exited is a container that ended with a code, five seconds after its start.
func Exited(id, name string, code, finished int) runner.Container {
	c := Running(id, name, finished-5)
	c.State = runner.ContainerExited
	reason := runner.ReasonError
	if code == 0 {
		reason = runner.ReasonCompleted
	}
	c.Exit = &runner.Termination{ContainerID: id, ExitCode: code, Reason: reason, StartedAt: c.StartedAt, FinishedAt: At(finished)}
	return c
}

// Created is a container that has not been started.
func Created(id, name string) runner.Container {
	return runner.Container{ID: id, Name: name, SandboxID: "s", State: runner.ContainerCreated}
}

// With returns a container with some fields set.
func With(c runner.Container, f func(*runner.Container)) runner.Container {
	f(&c)
	return c
}

// ConditionsOf returns the conditions of a pod by type.
func ConditionsOf(p *corev1.Pod) map[corev1.PodConditionType]corev1.PodCondition {
	m := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range p.Status.Conditions {
		m[c.Type] = c
	}
	return m
}

// Requesting returns a pod with one container that requests cpu and memory, and a priority unless that is empty.
func Requesting(name, cpu, memory, priority string) *manifests.Pod {
	c := NewContainer("a", ScriptServe)
	c.Resources.Requests = corev1.ResourceList{}
	for r, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q != "" {
			c.Resources.Requests[r] = resource.MustParse(q)
		}
	}
	p := NewPod(name, c)
	if priority != "" {
		n := int32(0)
		if _, err := fmt.Sscan(priority, &n); err != nil {
			panic(err)
		}
		p.Object.Spec.Priority = &n
	}
	return p
}

// WithHostPorts returns a pod with host ports written as in "127.0.0.1:80/UDP", protocol and address optional.
func WithHostPorts(name string, ports ...string) *manifests.Pod {
	c := NewContainer("a", "")
	for _, s := range ports {
		var p corev1.ContainerPort
		rest, protocol, ok := strings.Cut(s, "/")
		p.Protocol = corev1.ProtocolTCP
		if ok {
			p.Protocol = corev1.Protocol(protocol)
		}
		if i := strings.LastIndexByte(rest, ':'); i >= 0 {
			p.HostIP, rest = rest[:i], rest[i+1:]
		}
		if _, err := fmt.Sscan(rest, &p.HostPort); err != nil {
			panic(err)
		}
		p.ContainerPort = p.HostPort
		c.Ports = append(c.Ports, p)
	}
	return NewPod(name, c)
}

// NewSidecar returns an init container that runs a script of Fake as a sidecar.
func NewSidecar(name, script string) corev1.Container {
	c := NewContainer(name, script)
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

// WithInit returns a pod with a container named main and the given init containers.
func WithInit(name string, inits ...corev1.Container) *manifests.Pod {
	return Edited(NewPod(name, NewContainer("main", ScriptServe)), func(p *corev1.Pod) { p.Spec.InitContainers = inits })
}

// Hooked gives a container hooks that execute these commands; an empty command is no hook.
func Hooked(c corev1.Container, postStart, preStop string) corev1.Container {
	c.Lifecycle = &corev1.Lifecycle{}
	if postStart != "" {
		c.Lifecycle.PostStart = ExecHook(strings.Fields(postStart)...)
	}
	if preStop != "" {
		c.Lifecycle.PreStop = ExecHook(strings.Fields(preStop)...)
	}
	return c
}

// ExecHook is a hook that executes a command.
func ExecHook(words ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: words}}
}

// ExecProbe is a probe that executes a command each second and fails after three failures.
func ExecProbe(command string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}},
		PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
	}
}

// Ruled gives a container its own restart policy and rules.
func Ruled(c corev1.Container, policy corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) corev1.Container {
	c.RestartPolicy, c.RestartPolicyRules = &policy, rules
	return c
}

// OnCodes is a restart rule about exit codes.
func OnCodes(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
	return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
}

// DiskPod returns a pod that may use 1Mi of volume v and 2Mi in each of its two containers; a sidecar has no limit.
func DiskPod() *manifests.Pod {
	limit := func(name string) corev1.Container {
		c := NewContainer(name, ScriptServe)
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("2Mi")}
		return c
	}
	return Edited(WithInit("web", NewSidecar("side", ScriptServe)), func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{limit("a"), limit("b")}
		p.Spec.TerminationGracePeriodSeconds = new(int64(60))
		p.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("1Mi"))}}},
			{Name: "m", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("1Mi")),
			}}},
			{Name: "w", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
}

// Bound returns the pod as bound to this node by an API server.
func Bound(pod *manifests.Pod, edit func(*corev1.Pod)) *manifests.Pod {
	b := Edited(pod, func(p *corev1.Pod) {
		p.UID = "1c9d6a5e-0000-4000-8000-000000000001"
		edit(p)
	})
	b.Origin.Source = manifests.SourceAPIServer
	return b
}
