//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// walk is a client-go program that uses the API with one media type.
type walk struct {
	t      *testing.T
	in     *instance
	config *rest.Config
	client *kubernetes.Clientset
}

// TestClientGoWalksThroughTheAPI: client-go creates, reads, applies, scales and deletes, reads logs and runs commands, and sees each effect.
func TestClientGoWalksThroughTheAPI(t *testing.T) {
	in := newInstance(t, fmt.Sprintf("apiServer: {address: '127.0.0.1:%d'}", freePort(t)))
	in.start()
	for name, media := range map[string]string{"json": runtime.ContentTypeJSON, "protobuf": runtime.ContentTypeProtobuf} {
		w := &walk{t: t, in: in, config: rest.CopyConfig(in.adminConfig())}
		w.config.ContentType, w.config.AcceptContentTypes = media, media
		w.client = kubernetes.NewForConfigOrDie(w.config)
		w.pod(name)
		w.deployment(name)
		w.job(name)
	}
}

// pod is created, read, run into and deleted.
func (w *walk) pod(name string) {
	w.t.Helper()
	ctx, pods := w.t.Context(), w.client.CoreV1().Pods("default")
	created, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{
			{Name: "c", Image: image, Command: []string{"sh", "-c", "trap 'exit 0' TERM; echo said; while :; do sleep 0.1; done"}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.in.eventually("the pod is ready", func() error {
		p, err := pods.Get(ctx, created.Name, metav1.GetOptions{})
		if err == nil && (!isReady(*p) || p.UID != created.UID) {
			err = errors.New(brief(*p))
		}
		return err
	})
	w.in.eventually("its output is in the log", func() error {
		b, err := pods.GetLogs(created.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && string(b) != "said\n" {
			err = fmt.Errorf("%q", b)
		}
		return err
	})
	out, err := w.run(created.Name, "sh", "-c", "hostname; exit 3")
	if code, ok := errors.AsType[exec.CodeExitError](err); !ok || code.Code != 3 || out != created.Name+"\n" {
		w.t.Errorf("exec: %q, %v", out, err)
	}
	if err := pods.Delete(ctx, created.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &created.UID}}); err != nil {
		w.t.Error(err)
	}
	w.in.eventually("the pod is gone", func() error {
		_, err := pods.Get(ctx, created.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get: %w", errors.Join(errors.New("it is there"), err))
		}
		return nil
	})
}

// run runs a command in a pod.
func (w *walk) run(pod string, command ...string) (string, error) {
	request := w.client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true}, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(w.config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = e.StreamWithContext(w.t.Context(), remotecommand.StreamOptions{Stdout: &out})
	return out.String(), err
}

// deployment is applied, changed, scaled and deleted.
func (w *walk) deployment(name string) {
	w.t.Helper()
	ctx, deployments := w.t.Context(), w.client.AppsV1().Deployments("default")
	apply := func(manager, word string) error {
		_, err := deployments.Patch(ctx, name, types.ApplyPatchType, fmt.Appendf(nil, `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: %[2]q, command: [sleep, "3600"], env: [{name: WORD, value: %[3]s}]}]
`, name, image, word), metav1.PatchOptions{FieldManager: manager})
		return err
	}
	if err := apply("one", "first"); err != nil {
		w.t.Fatal(err)
	}
	if err := apply("two", "second"); !apierrors.IsConflict(err) {
		w.t.Errorf("a field of another manager is taken over: %v", err)
	}
	if err := apply("one", "second"); err != nil {
		w.t.Error(err)
	}
	w.in.eventually("it is scaled", func() error { // each change of its status is a conflict with what was read before
		scale, err := deployments.GetScale(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		scale.Spec.Replicas = 2
		_, err = deployments.UpdateScale(ctx, name, scale, metav1.UpdateOptions{})
		return err
	})
	w.in.eventually("both pods run with what was applied last", func() error { return w.rolledOut(ctx, name) })
	if err := deployments.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		w.t.Error(err)
	}
	w.in.eventually("its pods are gone", func() error {
		list, err := w.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(list.Items))
		}
		return err
	})
}

// job completes. Its pods can be cleaned up as in a cluster: none is created again.
func (w *walk) job(name string) {
	w.t.Helper()
	ctx, jobs, pods := w.t.Context(), w.client.BatchV1().Jobs("default"), w.client.CoreV1().Pods("default")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
	job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: image, Command: []string{"true"}}}}
	if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	complete := func() error {
		j, err := jobs.Get(ctx, name, metav1.GetOptions{})
		if err == nil && (j.Status.Succeeded != 1 || j.Status.CompletionTime == nil || j.Status.Active != 0) {
			err = fmt.Errorf("%+v", j.Status)
		}
		return err
	}
	w.in.eventually("the Job is complete", complete)
	ended := metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name}
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: ended.LabelSelector, FieldSelector: "status.phase=Succeeded"}); err != nil {
		w.t.Error(err)
	}
	w.in.eventually("its pod is gone", func() error {
		list, err := pods.List(ctx, ended)
		if err == nil && len(list.Items) > 0 {
			err = errors.New(brief(list.Items[0]))
		}
		return err
	})
	if err := complete(); err != nil {
		w.t.Error(err)
	}
	if err := jobs.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		w.t.Error(err)
	}
}

// rolledOut returns nil once a Deployment has two updated and available pods.
func (w *walk) rolledOut(ctx context.Context, name string) error {
	d, err := w.client.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 2 || d.Status.AvailableReplicas != 2 {
		return fmt.Errorf("generation %d: %+v", d.Generation, d.Status)
	}
	list, err := w.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if env := list.Items[i].Spec.Containers[0].Env; len(list.Items) != 2 || len(env) != 1 || env[0].Value != "second" {
			return fmt.Errorf("%d pods, one with %v", len(list.Items), env)
		}
	}
	return nil
}
