package runtimetest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
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
