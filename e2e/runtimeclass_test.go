//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestRuntimeClass: a pod waits for its class and for the runtime of its handler; running pods continue if these are removed.
func TestRuntimeClass(t *testing.T) {
	in := newInstance(t)
	wrapper := filepath.Join(in.dir, "wrapper", "runc") // which it is not
	// Another name in PATH would work, too.
	in.write(in.config, in.read("config.yaml")+"runtimeHandlers: {mine: ./wrapper/runc}\n")
	if err := os.Mkdir(filepath.Dir(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\necho \"$*\" >> "+wrapper+".calls\nexec runc \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	in.start()
	pod := func(class string) string {
		return strings.Replace(sleeper("classy", "echo", "    resources: {requests: {memory: 16Mi}, limits: {memory: 32Mi}}"), "spec:\n", "spec:\n  runtimeClassName: "+class+"\n", 1)
	}
	class := func(name, handler string) string {
		return fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s}\nhandler: %s\noverhead: {podFixed: {memory: 16Mi}}\n", name, handler)
	}
	waits := func(message string) {
		t.Helper()
		in.pod("classy", "says "+message, func(p corev1.Pod) bool {
			st := p.Status.ContainerStatuses
			return len(st) == 1 && st[0].State.Waiting != nil && strings.Contains(st[0].State.Waiting.Message, message)
		})
	}
	in.put("classy", pod("mine"))
	waits(`RuntimeClass "mine" not found`)
	in.put("class", class("mine", "mine"))
	p := in.ready("classy")
	if got := p.Spec.Overhead.Memory().String(); got != "16Mi" {
		t.Errorf("spec.overhead is %q", got)
	}
	if got := readCgroup(t, podCgroup(in, p), "memory.max", "memory/memory.limit_in_bytes"); got != "50331648" {
		t.Errorf("the limit of the pod is %s", got)
	}
	if b, err := os.ReadFile(wrapper + ".calls"); err != nil || !strings.Contains(string(b), strings.TrimPrefix(containerID(p, "c"), "containerd://")) {
		t.Errorf("the runtime of the class was asked for %s: %v", b, err)
	}
	in.drop("class")
	in.put("classy", pod("other"))
	in.put("class2", class("other", "unheard-of"))
	runs := func(what, message string) {
		t.Helper()
		after := in.pod("classy", what, func(p corev1.Pod) bool {
			out, err := in.run("describe", "classy")
			return err == nil && strings.Contains(beforeEvents(out), message)
		})
		if containerID(after, "c") != containerID(p, "c") || after.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("the pod that ran is %s", brief(after))
		}
	}
	runs("says what is to be configured", "set runtimeHandlers: {unheard-of: /path/of/runtime}")
	in.put("classy", pod("mine"))
	in.put("class", class("mine", "mine"))
	in.eventually("the edit is taken back", func() error {
		out, err := in.run("describe", "classy")
		if now := beforeEvents(out); err == nil && (strings.Contains(now, "unheard-of") || strings.Contains(now, "not found")) {
			err = errors.New(out)
		}
		return err
	})
	if after := in.ready("classy"); containerID(after, "c") != containerID(p, "c") {
		t.Errorf("after the edit was taken back the pod is %s", brief(after))
	}
	in.drop("classy")
	in.eventually("the runtime of the class deletes what it made", func() error {
		b, err := os.ReadFile(wrapper + ".calls")
		if id := strings.TrimPrefix(containerID(p, "c"), "containerd://"); err == nil && !strings.Contains(string(b), " delete "+id) {
			err = errors.New(string(b))
		}
		return err
	})
}
