package manifests

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// Refs is the content of the objects that one pod refers to. It has no entry for a missing object; its users decide what that means.
type Refs struct {
	// ConfigMaps, Secrets and Claims by name; all are in the pod's namespace.
	ConfigMaps map[string]*corev1.ConfigMap
	Secrets    map[string]*corev1.Secret
	Claims     map[string]*corev1.PersistentVolumeClaim
	// Volumes are all PersistentVolumes, for pods with claims: any of them may be the one that fits.
	Volumes []*corev1.PersistentVolume
	// Classes are all StorageClasses, for pods with claims.
	Classes []*StorageClass
	// Named maps the name of a PersistentVolume to the claim that names it (spec.volumeName), as namespace/name.
	Named map[string]string
	// VolumeSecrets are those that Volumes need, by namespace/name.
	VolumeSecrets map[string]*corev1.Secret
	// RuntimeClass is the one that spec.runtimeClassName names.
	RuntimeClass *nodev1.RuntimeClass
	// PriorityClass is the one that spec.priorityClassName names, or the default of pods that have neither class nor priority.
	PriorityClass *schedulingv1.PriorityClass
	// Hidden has the sources of objects that the pod refers to and must not see, HiddenStorage those of PersistentVolumes and their Secrets.
	Hidden, HiddenStorage map[ObjectID]string
	// Foreign is the storage for Claims of other spaces, which are bound to what these have.
	Foreign map[string]*Refs
	// Reader is the source of the pod, or of the claim.
	Reader string
	// spaces are the boundaries between sources.
	spaces *Spaces
}

// Storage returns the storage that a claim of the pod can be bound to.
func (r *Refs) Storage(claim string) *Refs {
	if r == nil || r.Foreign[claim] == nil {
		return r
	}
	return r.Foreign[claim]
}

// Owner returns the source of an object that exists but is hidden from the pod; empty: there is none.
func (r *Refs) Owner(id ObjectID) string {
	if r == nil {
		return ""
	}
	return cmp.Or(r.Hidden[id], r.HiddenStorage[id])
}

// MayTake reports whether Reader may have the storage of claims of the source owner.
func (r *Refs) MayTake(owner string) bool { return r.spaces.Takes(r.Reader, owner) }

// ConfigMap returns a ConfigMap of the pod's namespace, nil when there is none.
func (r *Refs) ConfigMap(name string) *corev1.ConfigMap {
	if r == nil {
		return nil
	}
	return r.ConfigMaps[name]
}

// Secret returns a Secret of the pod's namespace, nil when there is none.
func (r *Refs) Secret(name string) *corev1.Secret {
	if r == nil {
		return nil
	}
	return r.Secrets[name]
}

// SameRefs reports whether two pods refer to the same content.
func SameRefs(a, b *Pod) bool { return a.Refs.Same(b.Refs) }

// Same compares by identity: an object that did not change keeps its pointer.
func (r *Refs) Same(o *Refs) bool {
	if r == nil || o == nil {
		return r == o
	}
	return maps.Equal(r.ConfigMaps, o.ConfigMaps) && maps.Equal(r.Secrets, o.Secrets) && maps.Equal(r.Claims, o.Claims) &&
		slices.Equal(r.Volumes, o.Volumes) && slices.Equal(r.Classes, o.Classes) && maps.Equal(r.Named, o.Named) && maps.Equal(r.VolumeSecrets, o.VolumeSecrets) && r.RuntimeClass == o.RuntimeClass && r.PriorityClass == o.PriorityClass &&
		maps.Equal(r.Hidden, o.Hidden) && maps.Equal(r.HiddenStorage, o.HiddenStorage) && maps.EqualFunc(r.Foreign, o.Foreign, (*Refs).Same)
}

// Resolve returns what a pod of a source refers to and may see, nil when it refers to nothing.
func Resolve(pod *corev1.Pod, source string, all *Objects) *Refs {
	objects := all.View(source)
	names, priority := ReferredNames(pod), priorityClassOf(pod, objects)
	hidden := names.hidden(pod, objects)
	switch {
	case names.empty() && priority == nil && hidden == nil:
		return nil
	case names.empty():
		return &Refs{PriorityClass: priority, Hidden: hidden, Reader: source, spaces: all.within()}
	}
	refs := &Refs{
		PriorityClass: priority, Hidden: hidden, Reader: source, spaces: all.within(),
		ConfigMaps: pick(names.configMaps, func(n string) *corev1.ConfigMap { return objects.ConfigMap(pod.Namespace, n) }),
		Secrets:    pick(names.Secrets, func(n string) *corev1.Secret { return objects.Secret(pod.Namespace, n) }),
		Claims: pick(names.Claims, func(n string) *corev1.PersistentVolumeClaim {
			return objects.PersistentVolumeClaim(pod.Namespace, n)
		}),
	}
	if len(names.Claims) > 0 {
		refs.storage(objects)
		refs.foreign(objects)
	}
	if names.runtimeClass != "" {
		refs.RuntimeClass = objects.RuntimeClass(names.runtimeClass)
	}
	return refs
}

// hidden returns the sources of the objects that a pod names and that a view hides.
func (r *referred) hidden(pod *corev1.Pod, view *Objects) map[ObjectID]string {
	var found map[ObjectID]string
	look := func(kind, namespace string, names ...string) {
		for _, name := range names {
			id := ObjectID{Kind: kind, Namespace: namespace, Name: name}
			if owner := view.hiddenOwner(id); owner != "" {
				if found == nil {
					found = map[ObjectID]string{}
				}
				found[id] = owner
			}
		}
	}
	look("ConfigMap", pod.Namespace, r.configMaps...)
	look("Secret", pod.Namespace, r.Secrets...)
	look("PersistentVolumeClaim", pod.Namespace, r.Claims...)
	look("RuntimeClass", "", r.runtimeClass)
	look("PriorityClass", "", pod.Spec.PriorityClassName)
	return found
}

// StorageRefs are the references of a claim of a source alone.
func StorageRefs(all *Objects, source string) *Refs {
	r := &Refs{Reader: source, spaces: all.within()}
	r.storage(all.View(source))
	return r
}

// foreign adds the storage for claims of other spaces.
func (r *Refs) foreign(objects *Objects) {
	if objects == nil || objects.spaces == nil {
		return
	}
	for name, c := range r.Claims {
		if o := objects.Get(ObjectID{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: name}); !objects.sameSpace(r.Reader, o) {
			if r.Foreign == nil {
				r.Foreign = map[string]*Refs{}
			}
			r.Foreign[name] = StorageRefs(objects.root(), o.Origin.Source)
		}
	}
}

// storage adds all that claims can be bound to, and by what. All pods share it: there may be as many claims as pods.
func (r *Refs) storage(objects *Objects) {
	if objects == nil {
		r.Named = map[string]string{}
		return
	}
	objects.findStorage.Do(func() { objects.storage.find(objects) })
	all := &objects.storage
	r.Volumes, r.VolumeSecrets, r.Classes, r.Named, r.HiddenStorage = all.Volumes, all.VolumeSecrets, all.Classes, all.Named, all.HiddenStorage
}

// find fills in what storage adds.
func (r *Refs) find(objects *Objects) {
	for _, o := range objects.OfKind("PersistentVolume") {
		if v, ok := o.Object.(*corev1.PersistentVolume); ok {
			r.Volumes = append(r.Volumes, v)
			r.volumeSecret(v, objects)
		}
	}
	for _, o := range objects.OfKind("StorageClass") {
		if s, ok := o.Object.(*StorageClass); ok {
			r.Classes = append(r.Classes, s)
		}
	}
	for _, o := range objects.root().OfKind("PersistentVolume") {
		r.hide(o.ID(), objects)
	}
	r.Named = map[string]string{}
	for _, o := range objects.OfKind("PersistentVolumeClaim") {
		c, ok := o.Object.(*corev1.PersistentVolumeClaim)
		if ok && c.Spec.VolumeName != "" && r.Named[c.Spec.VolumeName] == "" {
			r.Named[c.Spec.VolumeName] = c.Namespace + "/" + c.Name
		}
	}
}

// hide adds the source of an object to HiddenStorage if the view hides it.
func (r *Refs) hide(id ObjectID, view *Objects) {
	owner := view.hiddenOwner(id)
	if owner == "" {
		return
	}
	if r.HiddenStorage == nil {
		r.HiddenStorage = map[ObjectID]string{}
	}
	r.HiddenStorage[id] = owner
}

// volumeSecret adds the login of a volume.
func (r *Refs) volumeSecret(v *corev1.PersistentVolume, objects *Objects) {
	if v.Spec.ISCSI == nil || v.Spec.ISCSI.SecretRef == nil {
		return
	}
	ref := v.Spec.ISCSI.SecretRef
	if s := objects.Secret(ref.Namespace, ref.Name); s != nil {
		if r.VolumeSecrets == nil {
			r.VolumeSecrets = map[string]*corev1.Secret{}
		}
		r.VolumeSecrets[ref.Namespace+"/"+ref.Name] = s
		return
	}
	r.hide(ObjectID{Kind: "Secret", Namespace: ref.Namespace, Name: ref.Name}, objects)
}

// WithRefs returns the pod with the content of its references. It returns was if that is the same pod with the same content, and pod itself
// if it has no references: pointers show whether anything changed.
func WithRefs(pod, was *Pod, objects *Objects) *Pod {
	refs := Resolve(pod.Object, pod.Origin.Source, objects)
	switch {
	case refs.Same(pod.Refs):
		return pod
	case was != nil && was.Object == pod.Object && was.Origin == pod.Origin && SameImages(was, pod) && was.Refs.Same(refs):
		return was
	}
	return &Pod{Object: pod.Object, Origin: pod.Origin, Refs: refs, Images: pod.Images}
}

// pick returns the existing objects of these names.
func pick[T any](names []string, get func(string) *T) map[string]*T {
	found := map[string]*T{}
	for _, name := range names {
		if o := get(name); o != nil {
			found[name] = o
		}
	}
	return found
}

// referred are the names of objects in a spec.
type referred struct {
	configMaps, Secrets, Claims []string
	runtimeClass                string
}

func (r *referred) empty() bool {
	return len(r.configMaps)+len(r.Secrets)+len(r.Claims) == 0 && r.runtimeClass == ""
}

// ReferredNames returns the names of the objects that a pod refers to.
func ReferredNames(pod *corev1.Pod) referred {
	var r referred
	spec := &pod.Spec
	if spec.RuntimeClassName != nil {
		r.runtimeClass = *spec.RuntimeClassName
	}
	for _, s := range spec.ImagePullSecrets {
		r.Secrets = append(r.Secrets, s.Name)
	}
	for i := range spec.Volumes {
		r.volume(&spec.Volumes[i].VolumeSource)
		if spec.Volumes[i].Ephemeral != nil {
			// A claim of that name that was written by hand is a conflict.
			r.Claims = append(r.Claims, TemplateClaimName(pod, &spec.Volumes[i]))
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			r.environment(&list[i])
		}
	}
	for i := range spec.EphemeralContainers {
		r.environment(AsContainer(&spec.EphemeralContainers[i]))
	}
	return r
}

func (r *referred) volume(v *corev1.VolumeSource) {
	switch {
	case v.ConfigMap != nil:
		r.configMaps = append(r.configMaps, v.ConfigMap.Name)
	case v.Secret != nil:
		r.Secrets = append(r.Secrets, v.Secret.SecretName)
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		r.Secrets = append(r.Secrets, v.ISCSI.SecretRef.Name)
	case v.PersistentVolumeClaim != nil:
		r.Claims = append(r.Claims, v.PersistentVolumeClaim.ClaimName)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if s.ConfigMap != nil {
				r.configMaps = append(r.configMaps, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				r.Secrets = append(r.Secrets, s.Secret.Name)
			}
		}
	}
}

func (r *referred) environment(c *corev1.Container) {
	for i := range c.EnvFrom {
		if ref := c.EnvFrom[i].ConfigMapRef; ref != nil {
			r.configMaps = append(r.configMaps, ref.Name)
		}
		if ref := c.EnvFrom[i].SecretRef; ref != nil {
			r.Secrets = append(r.Secrets, ref.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if from.ConfigMapKeyRef != nil {
			r.configMaps = append(r.configMaps, from.ConfigMapKeyRef.Name)
		}
		if from.SecretKeyRef != nil {
			r.Secrets = append(r.Secrets, from.SecretKeyRef.Name)
		}
	}
}

// FollowsEdits reports whether a spec has volumes whose content follows edits of objects or of the pod itself.
func FollowsEdits(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
	})
}

// ReadsOnce reports whether a container keeps the content that it started with: variables and subPath mounts do not follow edits.
func ReadsOnce(c *corev1.Container) bool {
	return len(c.EnvFrom) > 0 ||
		slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.ValueFrom != nil }) ||
		slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.SubPath != "" || m.SubPathExpr != "" })
}
