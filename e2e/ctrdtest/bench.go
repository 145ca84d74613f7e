//go:build e2e

package ctrdtest

import (
	"context"
	"fmt"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/runner"
)

// Stamped returns a pod whose container first writes the uptime to the mounted directory.
func Stamped(t testing.TB, name, dir string, hostNetwork bool) *manifests.Pod {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: %t
  containers:
  - name: c
    image: %s
    command: [sh, -c, 'read a b < /proc/uptime; echo $a > /out/%s; exec sleep 1000']
    volumeMounts: [{name: out, mountPath: /out}]
  volumes: [{name: out, hostPath: {path: %s}}]
`, name, hostNetwork, TestImage, name, dir)
	pods, err := decode.Pods("/x/"+name+".yaml", []byte(text), decode.Options{Source: "file"})
	Check(t, err)
	return pods[0]
}

// StartPod applies the actions of a worker for a new pod with one container.
func StartPod(ctx context.Context, rt runner.Runtime, pod *manifests.Pod) error {
	for _, a := range []runner.Action{
		{Kind: runner.CreateSandbox, UID: "uid-" + pod.Object.Name},
		{Kind: runner.EnsureImage, Container: "c"},
		{Kind: runner.CreateContainer, Container: "c"},
		{Kind: runner.StartContainer, Container: "c"},
	} {
		if err := rt.Apply(ctx, pod.Key(), pod, a); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// RemovePod applies the actions of a worker for a pod that is deleted.
func RemovePod(ctx context.Context, rt runner.Runtime, key manifests.Key) error {
	st, err := rt.Observe(ctx, key)
	if err != nil {
		return err
	}
	for _, c := range st.Containers {
		if err := rt.Apply(ctx, key, nil, runner.Action{Kind: runner.RemoveContainer, Container: c.Name, ContainerID: c.ID}); err != nil {
			return err
		}
	}
	return rt.Apply(ctx, key, nil, runner.Action{Kind: runner.RemoveSandbox})
}
