package storage

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

	"monopod/internal/hostarg"
	"monopod/manifests"
	"monopod/manifests/schema"
	"monopod/manifests/validate/check"
)

// The checks of claims, volumes and classes are those of the API server.

// volumesChecker checks volumes, claims and storage classes.
type volumesChecker struct{ *check.Checker }

// Volumes returns the checks of volumes, which report to c.
func Volumes(c *check.Checker) volumesChecker { return volumesChecker{c} }

// claimTemplate checks the claim of an ephemeral volume, of whose metadata only labels and annotations may be set.
func (c volumesChecker) claimTemplate(at *field.Path, t *corev1.PersistentVolumeClaimTemplate) {
	meta := reflect.ValueOf(t.ObjectMeta)
	for _, f := range schema.Fields(meta.Type()) {
		if f.Name != "labels" && f.Name != "annotations" && !meta.FieldByIndex(f.Index).IsZero() {
			c.Forbidden(at.Child("metadata", f.Name), "cannot be set")
		}
	}
	c.Add(metavalidation.ValidateLabels(t.Labels, at.Child("metadata", "labels"))...)
	c.ClaimSpec(at.Child("spec"), &t.Spec)
}

// ClaimSpec checks the spec of a claim.
func (c volumesChecker) ClaimSpec(at *field.Path, spec *corev1.PersistentVolumeClaimSpec) {
	if len(spec.AccessModes) == 0 {
		c.Required(at.Child("accessModes"), "at least 1 access mode is required")
	}
	c.accessModes(at.Child("accessModes"), spec.AccessModes)
	if spec.Selector != nil {
		c.Add(metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
	}
	storage, ok := spec.Resources.Requests[corev1.ResourceStorage]
	if !ok {
		c.Required(at.Child("resources").Key(string(corev1.ResourceStorage)), "")
	} else {
		c.positive(at.Child("resources").Key(string(corev1.ResourceStorage)), storage)
	}
	if class := spec.StorageClassName; class != nil && *class != "" {
		c.Subdomain(at.Child("storageClassName"), *class)
	}
	c.volumeMode(at.Child("volumeMode"), spec.VolumeMode)
}

func (c volumesChecker) accessModes(at *field.Path, modes []corev1.PersistentVolumeAccessMode) {
	for _, m := range modes {
		check.OneOf(c.Checker, at, m, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
	}
	if slices.Contains(modes, corev1.ReadWriteOncePod) && slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadWriteOncePod }) {
		c.Forbidden(at, "may not use ReadWriteOncePod with other access modes")
	}
}

func (c volumesChecker) volumeMode(at *field.Path, mode *corev1.PersistentVolumeMode) {
	if mode != nil {
		check.OneOf(c.Checker, at, *mode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
}

func (c volumesChecker) positive(at *field.Path, q resource.Quantity) {
	if q.Sign() <= 0 {
		c.Invalid(at, q.String(), "must be greater than zero")
	}
}

// PersistentVolume checks a PersistentVolume.
func (c volumesChecker) PersistentVolume(v *corev1.PersistentVolume) {
	at, spec := field.NewPath("spec"), &v.Spec
	if len(spec.AccessModes) == 0 {
		c.Required(at.Child("accessModes"), "")
	}
	c.accessModes(at.Child("accessModes"), spec.AccessModes)
	if len(spec.Capacity) == 0 {
		c.Required(at.Child("capacity"), "")
	} else if _, ok := spec.Capacity[corev1.ResourceStorage]; !ok || len(spec.Capacity) > 1 {
		c.Add(field.NotSupported(at.Child("capacity"), spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Capacity)) {
		c.positive(at.Child("capacity").Key(string(name)), spec.Capacity[name])
	}
	if spec.PersistentVolumeReclaimPolicy != "" {
		check.OneOf(c.Checker, at.Child("persistentVolumeReclaimPolicy"), spec.PersistentVolumeReclaimPolicy,
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	}
	c.volumeAffinity(at.Child("nodeAffinity"), spec.NodeAffinity)
	c.persistentSource(at, spec)
	for i, option := range spec.MountOptions {
		c.argument(at.Child("mountOptions").Index(i), option, hostarg.Text)
	}
	if spec.HostPath != nil && path.Clean(spec.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		c.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'")
	}
	if spec.StorageClassName != "" {
		c.Subdomain(at.Child("storageClassName"), spec.StorageClassName)
	}
	c.volumeMode(at.Child("volumeMode"), spec.VolumeMode)
}

func (c volumesChecker) volumeAffinity(at *field.Path, affinity *corev1.VolumeNodeAffinity) {
	switch {
	case affinity == nil:
	case affinity.Required == nil:
		c.Required(at.Child("required"), "must specify required node constraints")
	case len(affinity.Required.NodeSelectorTerms) == 0:
		c.Required(at.Child("required", "nodeSelectorTerms"), "must have at least one node selector term")
	}
}

// persistentSource checks that a volume has one source, and that source.
func (c volumesChecker) persistentSource(at *field.Path, spec *corev1.PersistentVolumeSpec) {
	source := reflect.ValueOf(spec.PersistentVolumeSource)
	first := ""
	for _, f := range schema.Fields(source.Type()) {
		switch {
		case source.FieldByIndex(f.Index).IsNil():
		case first != "":
			c.Forbidden(at.Child(f.Name), "may not specify more than 1 volume type")
		default:
			first = f.Name
		}
	}
	switch first {
	case "":
		c.Required(at, "must specify a volume type")
	case "hostPath":
		c.hostPath(at.Child("hostPath"), spec.HostPath)
	case "local":
		if spec.Local.Path == "" {
			c.Required(at.Child("local", "path"), "")
		} else {
			c.NoBacksteps(at.Child("local", "path"), spec.Local.Path)
		}
		if spec.Local.FSType != nil {
			c.fileSystem(at.Child("local", "fsType"), *spec.Local.FSType)
		}
		if spec.NodeAffinity == nil {
			c.Required(field.NewPath("metadata", "annotations"), "Local volume requires node affinity")
		}
	case "nfs":
		c.nfs(at.Child("nfs"), spec.NFS)
	case "iscsi":
		s := spec.ISCSI
		c.iscsi(at.Child("iscsi"), iscsiFields{
			portal: s.TargetPortal, iqn: s.IQN, iface: s.ISCSIInterface, fsType: s.FSType, portals: s.Portals, lun: s.Lun, secret: s.SecretRef != nil,
			chapDiscovery: s.DiscoveryCHAPAuth, chapSession: s.SessionCHAPAuth, initiator: s.InitiatorName,
		})
	}
}

// StorageClass checks a StorageClass.
func (c volumesChecker) StorageClass(s *manifests.StorageClass) {
	if s.Provisioner == "" {
		c.Required(field.NewPath("provisioner"), "")
	} else {
		c.QualifiedName(field.NewPath("provisioner"), strings.ToLower(s.Provisioner))
	}
	if p := s.ReclaimPolicy; p != nil {
		check.OneOf(c.Checker, field.NewPath("reclaimPolicy"), *p, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	if m := s.VolumeBindingMode; m != nil {
		check.OneOf(c.Checker, field.NewPath("volumeBindingMode"), *m, "Immediate", "WaitForFirstConsumer")
	}
}
