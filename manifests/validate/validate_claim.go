package validate

import (
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests"
	"monopod/manifests/schema"
)

// The checks of claims, volumes and classes are those of the API server.

// claimTemplate checks the claim of an ephemeral volume, of whose metadata only labels and annotations may be set.
func (c *checker) claimTemplate(at *field.Path, t *corev1.PersistentVolumeClaimTemplate) {
	meta := reflect.ValueOf(t.ObjectMeta)
	for _, f := range schema.Fields(meta.Type()) {
		if f.Name != "labels" && f.Name != "annotations" && !meta.FieldByIndex(f.Index).IsZero() {
			c.forbidden(at.Child("metadata", f.Name), "cannot be set")
		}
	}
	c.add(metavalidation.ValidateLabels(t.Labels, at.Child("metadata", "labels"))...)
	c.claimSpec(at.Child("spec"), &t.Spec)
}

func (c *checker) claimSpec(at *field.Path, spec *corev1.PersistentVolumeClaimSpec) {
	if len(spec.AccessModes) == 0 {
		c.required(at.Child("accessModes"), "at least 1 access mode is required")
	}
	c.accessModes(at.Child("accessModes"), spec.AccessModes)
	if spec.Selector != nil {
		c.add(metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	}
	storage, ok := spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		c.required(at.Child("resources").Key(string(corev1.ResourceStorage)), "")
	} else {
		c.positive(at.Child("resources").Key(string(corev1.ResourceStorage)), storage)
	}
	if class := spec.StorageClassName; class != nil && *class != "" {
		c.subdomain(at.Child("storageClassName"), *class)
	}
	c.volumeMode(at.Child("volumeMode"), spec.VolumeMode)
}

func (c *checker) accessModes(at *field.Path, modes []corev1.PersistentVolumeAccessMode) {
	for _, m := range modes {
		oneOf(c, at, m, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
	}
	if slices.Contains(modes, corev1.ReadWriteOncePod) && slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadWriteOncePod }) {
		c.forbidden(at, "may not use ReadWriteOncePod with other access modes")
	}
}

func (c *checker) volumeMode(at *field.Path, mode *corev1.PersistentVolumeMode) {
	if mode != nil {
		oneOf(c, at, *mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
}

func (c *checker) positive(at *field.Path, q resource.Quantity) {
	if q.Sign() <= 0 {
		c.invalid(at, q.String(), "must be greater than zero")
	}
}

func (c *checker) persistentVolume(v *corev1.PersistentVolume) {
	at, spec := field.NewPath("spec"), &v.Spec
	if len(spec.AccessModes) == 0 {
		c.required(at.Child("accessModes"), "")
	}
	c.accessModes(at.Child("accessModes"), spec.AccessModes)
	if len(spec.Capacity) == 0 {
		c.required(at.Child("capacity"), "")
	} else if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		c.add(field.NotSupported(at.Child("capacity"), spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Capacity)) {
		c.positive(at.Child("capacity").Key(string(name)), spec.Capacity[name])
	}
	if spec.PersistentVolumeReclaimPolicy != "" {
		oneOf(c, at.Child("persistentVolumeReclaimPolicy"), spec.PersistentVolumeReclaimPolicy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	}
	c.volumeAffinity(at.Child("nodeAffinity"), spec.NodeAffinity)
	c.persistentSource(at, spec)
	if spec.HostPath != nil && path.Clean(spec.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		c.forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
	if spec.StorageClassName != "" {
		c.subdomain(at.Child("storageClassName"), spec.StorageClassName)
	}
	c.volumeMode(at.Child("volumeMode"), spec.VolumeMode)
}

func (c *checker) volumeAffinity(at *field.Path, affinity *corev1.VolumeNodeAffinity) {
	switch {
	case affinity == nil:
	case affinity.Required == nil:
		c.required(at.Child("required"), "must specify required node constraints")
	case len(affinity.Required.NodeSelectorTerms) == 0:
		c.required(at.Child("required", "nodeSelectorTerms"), "must have at least one node selector term")
	}
}

// persistentSource checks that a volume has one source, and that source.
func (c *checker) persistentSource(at *field.Path, spec *corev1.PersistentVolumeSpec) {
	source := reflect.ValueOf(spec.PersistentVolumeSource)
	first := ""
	for _, f := range schema.Fields(source.Type()) {
		switch {
		case source.FieldByIndex(f.Index).IsNil():
		case first != "":
			c.forbidden(at.Child(f.Name), "may not specify more than 1 volume type")
		default:
			first = f.Name
		}
	}
	switch first {
	case "":
		c.required(at, "must specify a volume type")
	case "hostPath":
		c.hostPath(at.Child("hostPath"), spec.HostPath)
	case "local":
		if spec.Local.Path == "" {
			c.required(at.Child("local", "path"), "")
		} else {
			c.noBacksteps(at.Child("local", "path"), spec.Local.Path)
		}
		if spec.NodeAffinity == nil {
			c.required(field.NewPath("metadata", "annotations"), "Local volume requires node affinity")
		}
	case "nfs":
		c.nfs(at.Child("nfs"), spec.NFS)
	case "iscsi":
		s := spec.ISCSI
		c.iscsi(at.Child("iscsi"), iscsiFields{
			portal: s.TargetPortal, iqn: s.IQN, lun: s.Lun, secret: s.SecretRef != nil,
			chapDiscovery: s.DiscoveryCHAPAuth, chapSession: s.SessionCHAPAuth, initiator: s.InitiatorName,
		})
	}
}

func (c *checker) storageClass(s *manifests.StorageClass) {
	if s.Provisioner == "" {
		c.required(field.NewPath("provisioner"), "")
	} else {
		c.qualifiedName(field.NewPath("provisioner"), strings.ToLower(s.Provisioner))
	}
	if p := s.ReclaimPolicy; p != nil {
		oneOf(c, field.NewPath("reclaimPolicy"), *p, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	if m := s.VolumeBindingMode; m != nil {
		oneOf(c, field.NewPath("volumeBindingMode"), *m, "Immediate", "WaitForFirstConsumer")
	}
}
