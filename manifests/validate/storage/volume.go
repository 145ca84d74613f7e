// Package storage validates volumes, claims, persistent volumes and storage classes, and what refers to fields, files and objects.
//
// It must not default or refuse anything that is valid.
package storage

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/internal/hostarg"
	"monopod/manifests/schema"
	"monopod/manifests/validate/check"
)

// Volumes checks the volumes and remembers the good ones for the mounts.
func (c volumesChecker) Volumes(path *field.Path) {
	c.ValidVolumes = map[string]*corev1.Volume{}
	for i := range c.Pod.Spec.Volumes {
		v, at := &c.Pod.Spec.Volumes[i], path.Index(i)
		before := len(c.Errs)
		c.volumeSource(at, v)
		if v.Name == "" {
			c.Required(at.Child("name"), "")
		} else {
			c.Label(at.Child("name"), v.Name)
		}
		if c.ValidVolumes[v.Name] != nil {
			c.Add(field.Duplicate(at.Child("name"), v.Name))
		}
		if len(c.Errs) == before {
			c.ValidVolumes[v.Name] = v
		}
		if v.PersistentVolumeClaim != nil && c.createsClaim(v.PersistentVolumeClaim.ClaimName) {
			c.Invalid(at.Child("persistentVolumeClaim", "claimName"), v.PersistentVolumeClaim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	}
}

// ValidVolume returns the volume of a name, unless there is something wrong with it.
func (c volumesChecker) ValidVolume(name string) *corev1.Volume { return c.ValidVolumes[name] }

// createsClaim reports whether a claim is created for one of the pod's ephemeral volumes.
func (c volumesChecker) createsClaim(name string) bool {
	return c.Pod.Name != "" && slices.ContainsFunc(c.Pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil && c.Pod.Name+"-"+v.Name == name
	})
}

// volumeSource checks that a volume has one source, and that source.
func (c volumesChecker) volumeSource(path *field.Path, v *corev1.Volume) {
	if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() < 0 {
		c.Forbidden(path.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
	if v.EmptyDir != nil && v.EmptyDir.Mode != nil && (*v.EmptyDir.Mode < 0 || *v.EmptyDir.Mode > 0o1777) {
		c.Invalid(path.Child("emptyDir", "mode"), *v.EmptyDir.Mode, "must be a number between 0 and 01777 (octal), both inclusive")
	}
	first := ""
	if v.EmptyDir != nil {
		first = "emptyDir"
	}
	source := reflect.ValueOf(v.VolumeSource)
	for _, f := range schema.Fields(source.Type()) {
		if source.FieldByIndex(f.Index).IsNil() || f.Name == first {
			continue
		}
		if first != "" {
			c.Forbidden(path.Child(f.Name), "may not specify more than 1 volume type")
			continue
		}
		first = f.Name
	}
	c.firstSource(path, v, first)
}

// firstSource checks the first source of a volume, even if it has several.
func (c volumesChecker) firstSource(path *field.Path, v *corev1.Volume, name string) {
	at := path.Child(name)
	switch name {
	case "hostPath":
		c.hostPath(at, v.HostPath)
	case "secret":
		c.fileSource(at, "secretName", v.Secret.SecretName, v.Secret.DefaultMode)
		c.UserID(at.Child("defaultUser"), v.Secret.DefaultUser)
		c.items(at.Child("items"), v.Secret.Items)
	case "configMap":
		c.fileSource(at, "name", v.ConfigMap.Name, v.ConfigMap.DefaultMode)
		c.UserID(at.Child("defaultUser"), v.ConfigMap.DefaultUser)
		c.items(at.Child("items"), v.ConfigMap.Items)
	case "downwardAPI":
		c.fileMode(at.Child("defaultMode"), v.DownwardAPI.DefaultMode)
		c.UserID(at.Child("defaultUser"), v.DownwardAPI.DefaultUser)
		for i := range v.DownwardAPI.Items {
			c.downwardFile(at, &v.DownwardAPI.Items[i])
		}
	case "projected":
		c.projected(at, v.Projected)
	case "persistentVolumeClaim":
		if v.PersistentVolumeClaim.ClaimName == "" {
			c.Required(at.Child("claimName"), "")
		}
	case "ephemeral":
		c.ephemeralVolume(path, v)
	case "image":
		if v.Image.Reference == "" {
			c.Required(at.Child("reference"), "")
		}
		check.OneOf(c.Checker, at.Child("pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	case "nfs":
		c.nfs(at, v.NFS)
	case "iscsi":
		s := v.ISCSI
		c.iscsi(at, iscsiFields{
			portal: s.TargetPortal, iqn: s.IQN, iface: s.ISCSIInterface, fsType: s.FSType, portals: s.Portals, lun: s.Lun, secret: s.SecretRef != nil,
			chapDiscovery: s.DiscoveryCHAPAuth, chapSession: s.SessionCHAPAuth, initiator: s.InitiatorName,
		})
	}
}

func (c volumesChecker) hostPath(path *field.Path, source *corev1.HostPathVolumeSource) {
	if source.Path == "" {
		c.Required(path.Child("path"), "")
		return
	}
	c.NoBacksteps(path.Child("path"), source.Path)
	check.OneOf(c.Checker, path.Child("type"), *source.Type,
		corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
		corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
}

func (c volumesChecker) fileSource(path *field.Path, nameField, name string, mode *int32) {
	if name == "" {
		c.Required(path.Child(nameField), "")
	}
	c.fileMode(path.Child("defaultMode"), mode)
}

func (c volumesChecker) fileMode(path *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func (c volumesChecker) items(path *field.Path, items []corev1.KeyToPath) {
	for i, item := range items {
		at := path.Index(i)
		if item.Key == "" {
			c.Required(at.Child("key"), "")
		}
		if item.Path == "" {
			c.Required(at.Child("path"), "")
		}
		c.fileName(at.Child("path"), item.Path)
		c.fileMode(at.Child("mode"), item.Mode)
		c.UserID(at.Child("user"), item.User)
	}
}

// downwardFile reports at path, not at the file: so does the API server.
func (c volumesChecker) downwardFile(path *field.Path, file *corev1.DownwardAPIVolumeFile) {
	if file.Path == "" {
		c.Required(path.Child("path"), "")
	}
	c.fileName(path.Child("path"), file.Path)
	switch {
	case file.FieldRef != nil:
		Variables(c.Checker).fieldRef(path.Child("fieldRef"), file.FieldRef, volumeFields())
		if file.ResourceFieldRef != nil {
			c.Invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.ResourceFieldRef != nil && file.ResourceFieldRef.ContainerName == "":
		c.Required(path.Child("resourceFieldRef", "containerName"), "")
	case file.ResourceFieldRef != nil:
		Variables(c.Checker).resourceFieldRef(path.Child("resourceFieldRef"), file.ResourceFieldRef)
	default:
		c.Required(path, "one of fieldRef and resourceFieldRef is required")
	}
	c.fileMode(path.Child("mode"), file.Mode)
	c.UserID(path.Child("user"), file.User)
}

func (c volumesChecker) projected(path *field.Path, projected *corev1.ProjectedVolumeSource) {
	c.fileMode(path.Child("defaultMode"), projected.DefaultMode)
	c.UserID(path.Child("defaultUser"), projected.DefaultUser)
	paths := map[string]bool{}
	unique := func(name, shown string) {
		if name != "" && paths[name] {
			c.Invalid(path, shown, "conflicting duplicate paths")
		}
		paths[name] = true
	}
	for i := range projected.Sources {
		source, at := &projected.Sources[i], path.Child("sources").Index(i)
		if s := source.Secret; s != nil {
			c.fileSource(at.Child("secret"), "name", s.Name, nil)
			c.projectedItems(at.Child("secret", "items"), s.Items, func(p string) { unique(p, s.Name) })
		}
		if m := source.ConfigMap; m != nil {
			c.fileSource(at.Child("configMap"), "name", m.Name, nil)
			c.projectedItems(at.Child("configMap", "items"), m.Items, func(p string) { unique(p, m.Name) })
		}
		if d := source.DownwardAPI; d != nil {
			for j := range d.Items {
				c.downwardFile(at.Child("downwardAPI"), &d.Items[j])
				unique(d.Items[j].Path, d.Items[j].Path)
			}
		}
		if source.ServiceAccountToken != nil {
			c.accountToken(path, at.Child("serviceAccountToken"), source.ServiceAccountToken)
		}
		if sources := reflect.ValueOf(*source); countSet(sources) > 1 {
			c.Forbidden(at, "may not specify more than 1 volume type per source")
		}
	}
}

func countSet(v reflect.Value) int {
	n := 0
	for _, f := range v.Fields() {
		if !f.IsZero() {
			n++
		}
	}
	return n
}

func (c volumesChecker) projectedItems(path *field.Path, items []corev1.KeyToPath, unique func(string)) {
	c.items(path, items)
	for _, item := range items {
		unique(item.Path)
	}
}

func (c volumesChecker) accountToken(volume, path *field.Path, token *corev1.ServiceAccountTokenProjection) {
	if c.Pod.Spec.ServiceAccountName == "" {
		c.Forbidden(path, "must not be specified when serviceAccountName is not set")
	}
	if *token.ExpirationSeconds < 10*60 {
		c.Invalid(path.Child("expirationSeconds"), *token.ExpirationSeconds, "may not specify a duration less than 10 minutes")
	}
	if *token.ExpirationSeconds > 1<<32 {
		c.Invalid(path.Child("expirationSeconds"), *token.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds")
	}
	c.UserID(path.Child("user"), token.User)
	if token.Path == "" {
		c.Required(volume.Child("path"), "")
		return
	}
	c.fileName(volume.Child("path"), token.Path)
}

func (c volumesChecker) ephemeralVolume(path *field.Path, v *corev1.Volume) {
	if t := path.Child("ephemeral", "volumeClaimTemplate"); v.Ephemeral.VolumeClaimTemplate == nil {
		c.Required(t, "")
	} else {
		c.claimTemplate(t, v.Ephemeral.VolumeClaimTemplate)
	}
	if c.Pod.Name == "" || v.Name == "" {
		return
	}
	claim := c.Pod.Name + "-" + v.Name
	for _, msg := range validation.IsDNS1123Subdomain(claim) {
		c.Invalid(path.Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", claim, msg))
	}
}

func (c volumesChecker) nfs(at *field.Path, source *corev1.NFSVolumeSource) {
	if source.Server == "" {
		c.Required(at.Child("server"), "")
	} else {
		c.argument(at.Child("server"), source.Server, hostarg.Text)
	}
	if source.Path == "" {
		c.Required(at.Child("path"), "")
	}
	if !path.IsAbs(source.Path) {
		c.Invalid(at.Child("path"), source.Path, "must be an absolute path")
	}
	c.argument(at.Child("path"), source.Path, hostarg.Text)
}

// iscsiFields are what the two kinds of iSCSI sources have in common.
type iscsiFields struct {
	portal, iqn, iface, fsType string
	portals                    []string
	lun                        int32
	chapDiscovery, chapSession bool
	secret                     bool
	initiator                  *string
}

// iscsi is stricter than the API server: what it lets through becomes an argument of iscsiadm and of mkfs, and the name of a file.
func (c volumesChecker) iscsi(at *field.Path, f iscsiFields) {
	if f.portal == "" {
		c.Required(at.Child("targetPortal"), "")
	} else {
		c.argument(at.Child("targetPortal"), f.portal, hostarg.Portal)
	}
	for i, p := range f.portals {
		c.argument(at.Child("portals").Index(i), p, hostarg.Portal)
	}
	if f.iqn == "" {
		c.Required(at.Child("iqn"), "")
	} else {
		c.argument(at.Child("iqn"), f.iqn, hostarg.TargetName)
	}
	if f.iface != "" {
		c.argument(at.Child("iscsiInterface"), f.iface, hostarg.ISCSIInterface)
	}
	c.fileSystem(at.Child("fsType"), f.fsType)
	if f.lun < 0 || f.lun > 255 {
		c.Invalid(at.Child("lun"), f.lun, validation.InclusiveRangeError(0, 255))
	}
	if (f.chapDiscovery || f.chapSession) && !f.secret {
		c.Required(at.Child("secretRef"), "")
	}
	if f.initiator != nil {
		c.argument(at.Child("initiatorName"), *f.initiator, hostarg.TargetName)
	}
}

// argument reports a value that must not be given to a program of the host.
func (c volumesChecker) argument(at *field.Path, value string, check func(string) error) {
	if err := check(value); err != nil {
		c.Invalid(at, value, err.Error())
	}
}

// fileSystem reports a type of file system that is not known; empty is none.
func (c volumesChecker) fileSystem(at *field.Path, fsType string) {
	if fsType != "" {
		check.OneOf(c.Checker, at, fsType, hostarg.FileSystems()...)
	}
}

// fileName checks the path of a file in a volume that is written atomically: names that start with two dots
// are taken by the writer.
func (c volumesChecker) fileName(path *field.Path, value string) {
	c.DescendingPath(path, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") {
		c.Invalid(path, value, "must not start with '..'")
	}
}
