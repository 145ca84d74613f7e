package writes

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/managed"
	"monopod/node/kubeapi/storage"
	"monopod/node/kubeapi/strategy"
)

// decode reads the object in the body, and adds warnings.
func (c *call) decode() (kinds.Object, error) {
	sent, warnings, err := codec.Decode(c.w, c.r, c.k.GroupVersionKind, c.opts.Validation)
	if err != nil {
		return nil, err
	}
	for _, text := range warnings {
		codec.Warn(c.w, text)
	}
	o, ok := sent.(kinds.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is a %T", sent))
	}
	return o, nil
}

// maxNames is how many names are generated from generateName before a create fails.
const maxNames = 8

func (c *call) create() error {
	sent, err := c.decode()
	if err != nil {
		return err
	}
	return c.store(func() (decision, error) { return c.decideCreate(sent, false) })
}

// decideCreate creates an object from sent, which is not modified. applied reports server-side apply, where field ownership is already set.
func (c *call) decideCreate(sent kinds.Object, applied bool) (decision, error) {
	generates := sent.GetName() == "" && sent.GetGenerateName() != ""
	for try := 1; ; try++ {
		o := sent.DeepCopyObject().(kinds.Object)
		err := strategy.Create(c.k, o, strategy.NewMetadata{Namespace: c.req.Namespace, Now: c.now(), UID: uuid.NewUUID(), Suffix: rand.String(5)})
		if err != nil {
			return decision{}, err
		}
		if err := checkNamespace(c, o.GetName()); err != nil {
			return decision{}, err
		}
		there, err := c.at(c.k, o.GetNamespace(), o.GetName())
		if err != nil {
			return decision{}, err
		}
		if there != nil && generates && try < maxNames {
			continue
		}
		if there != nil {
			return decision{}, strategy.Exists(c.k, there, generates)
		}
		if err := c.checkWritable(c.k, o.GetNamespace(), o.GetName()); err != nil {
			return decision{}, err
		}
		if !applied {
			o = managed.Update(c.k, "", c.k.New(), o, c.manager)
		}
		strategy.Admit(o)
		if err := c.admit("create", o); err != nil {
			return decision{}, err
		}
		if c.opts.DryRun {
			strategy.Pending(o)
		}
		return decision{Change: storage.Change{Put: []kinds.Object{o}}, answer: o, code: http.StatusCreated}, nil
	}
}

func (c *call) update() error {
	sent, err := c.decode()
	if err != nil {
		return err
	}
	return c.store(func() (decision, error) {
		old, err := c.current()
		if err != nil {
			return decision{}, err
		}
		if old == nil {
			return decision{}, notFound(c.req)
		}
		return c.decideUpdate(old, sent.DeepCopyObject().(kinds.Object), false)
	})
}

// decideUpdate replaces an object by now, which is modified. applied reports that field ownership is already set.
func (c *call) decideUpdate(old, now kinds.Object, applied bool) (decision, error) {
	if c.req.Subresource == "ephemeralcontainers" {
		return c.decideEphemeral(old, now)
	}
	if err := c.checkPart(old, now); err != nil {
		return decision{}, err
	}
	if err := strategy.Update(c.k, c.req.Subresource, old, now); err != nil {
		return decision{}, err
	}
	if c.h.cfg.ImmutablePods && c.req.Subresource == "" {
		if err := strategy.PodUpdate(c.k, old, now); err != nil {
			return decision{}, err
		}
	}
	if !applied {
		now = managed.Update(c.k, c.req.Subresource, withKind(c.k, old), now, c.manager)
	}
	d := decision{answer: old, code: http.StatusOK}
	if strategy.Same(old, now) {
		return d, nil
	}
	if err := c.checkWritable(c.k, old.GetNamespace(), old.GetName()); err != nil {
		return decision{}, err
	}
	if old.GetDeletionTimestamp() != nil && len(old.GetFinalizers()) == 0 {
		if err := strategy.CheckTerminating(c.k, old, now); err != nil {
			return decision{}, err
		}
	}
	if err := c.admit("update", now); err != nil {
		return decision{}, err
	}
	d.answer = now
	if now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0 && len(old.GetFinalizers()) > 0 {
		d.gone = true
		d.Remove = []storage.Removal{removal(c.k, now, new(int64(0)))}
		if err := addDependents(c, &d.Change, []kinds.Object{now}); err != nil {
			return decision{}, err
		}
		return d, endNamespace(c, &d.Change, now.GetNamespace())
	}
	d.Put = []kinds.Object{now}
	return d, nil
}

// decideEphemeral adds ephemeral containers to a pod, wherever it is defined: they are not part of its definition.
func (c *call) decideEphemeral(old, now kinds.Object) (decision, error) {
	before, ok := old.(*corev1.Pod)
	after, isPod := now.(*corev1.Pod)
	if !ok || !isPod {
		return decision{}, apierrors.NewBadRequest(fmt.Sprintf("expected a Pod, not a %T", now))
	}
	added, err := strategy.EphemeralContainers(c.k, before, after)
	if err != nil {
		return decision{}, err
	}
	if err := strategy.Update(c.k, c.req.Subresource, old, now); err != nil {
		return decision{}, err
	}
	d := decision{answer: old, code: http.StatusOK}
	if len(added) == 0 {
		return d, nil
	}
	if old.GetDeletionTimestamp() != nil {
		return decision{}, strategy.CheckTerminating(c.k, old, now)
	}
	if err := admitCommands(c, now); err != nil {
		return decision{}, err
	}
	d.answer, d.Ephemeral = now, &storage.Ephemeral{Pod: after, Added: added}
	return d, nil
}

// checkPart checks that a subresource write changes only what it may; for the status of a pod, it reduces now to the readiness-gate
// conditions.
func (c *call) checkPart(old, now kinds.Object) error {
	before, isPod := old.(*corev1.Pod)
	after, _ := now.(*corev1.Pod)
	resource := c.k.Resource().GroupResource()
	switch c.req.Subresource {
	case "status":
		if isPod {
			strategy.GateConditions(before, after)
			return nil
		}
		if !strategy.SameStatus(old, now) {
			return apierrors.NewForbidden(resource, old.GetName(), fmt.Errorf("its status is managed by monopod and read-only"))
		}
	case "resize":
		strategy.Default(c.k, now)
		return strategy.Resize(c.k, before, after)
	}
	return nil
}

// withKind returns a copy of a shared object with its kind set.
func withKind(k *kinds.Kind, o kinds.Object) kinds.Object {
	o = o.DeepCopyObject().(kinds.Object)
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return o
}
