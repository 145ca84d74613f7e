package kubewrite

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/policy"
	"monopod/manifests/validate"
	"monopod/node"
	"monopod/node/kubeapi"
	"monopod/runner"
	"monopod/runner/pool"
)

// debug adds ephemeral containers to a pod. It runs without the write lock, because it waits for the worker of the pod.
func (w *Writer) debug(ctx context.Context, e *kubeapi.Ephemeral) error {
	kind, err := kindOf(e.Pod)
	if err != nil {
		return err
	}
	resource := kind.Resource().GroupResource()
	var add []corev1.EphemeralContainer
	for _, name := range e.Added {
		if c := manifests.FindEphemeral(&e.Pod.Spec, name); c != nil {
			add = append(add, *c)
		}
	}
	key := manifests.Key{Namespace: e.Pod.Namespace, Name: e.Pod.Name}
	err = w.cfg.Applier.State.AddEphemeral(ctx, key, e.Pod.UID, add)
	switch {
	case err == nil:
	case errors.Is(err, pool.ErrEphemeral):
		return apierrors.NewConflict(resource, e.Pod.Name, err)
	case errors.Is(err, pool.ErrNotRunning):
		return apierrors.NewConflict(resource, e.Pod.Name, errors.New("its sandbox does not exist, or the pod has changed; get it again and retry"))
	case ctx.Err() != nil:
		return apierrors.NewServerTimeout(resource, "patch", 1)
	default:
		return apierrors.NewServiceUnavailable(err.Error())
	}
	w.cfg.Applier.AwaitPod(ctx, key, func(p *node.PodView) bool {
		return p.Pod.UID != e.Pod.UID || !slices.ContainsFunc(e.Added, func(name string) bool { return manifests.FindEphemeral(&p.Pod.Spec, name) == nil })
	})
	return nil
}

// checkEphemeral refuses ephemeral containers that are invalid, or that the node does not allow.
func (w *Writer) checkEphemeral(e *kubeapi.Ephemeral) error {
	kind, err := kindOf(e.Pod)
	if err != nil {
		return err
	}
	errs := validate.Ephemeral(e.Pod)
	if len(e.Pod.Spec.EphemeralContainers) > runner.MaxEphemeral {
		errs = append(errs, field.TooMany(field.NewPath("spec", "ephemeralContainers"), len(e.Pod.Spec.EphemeralContainers), runner.MaxEphemeral))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(kind.GroupKind(), e.Pod.Name, errs)
	}
	without := e.Pod.DeepCopy()
	without.Spec.EphemeralContainers = slices.DeleteFunc(without.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool {
		return slices.Contains(e.Added, c.Name)
	})
	level := w.cfg.Applier.Policy.PodSecurity
	before := policy.Forbidden(level, &without.ObjectMeta, &without.Spec)
	found := slices.DeleteFunc(policy.Forbidden(level, &e.Pod.ObjectMeta, &e.Pod.Spec), func(text string) bool { return slices.Contains(before, text) })
	if len(found) > 0 {
		return forbidden(kind, e.Pod.Name, strings.Join(found, "; "))
	}
	return nil
}
