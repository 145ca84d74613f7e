package validate

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/schema"
)

// volumes checks the volumes and remembers the good ones for the mounts.
func (c *checker) volumes(path *field.Path) {
	c.validVolumes = map[string]*corev1.Volume{}
	for i := range c.pod.Spec.Volumes {
		v, at := &c.pod.Spec.Volumes[i], path.Index(i)
		before := len(c.errs)
		c.volumeSource(at, v)
		if v.Name == "" {
			c.required(at.Child("name"), "")
		} else {
			c.label(at.Child("name"), v.Name)
		}
		if c.validVolumes[v.Name] != nil {
			c.add(field.Duplicate(at.Child("name"), v.Name))
		}
		if len(c.errs) == before {
			c.validVolumes[v.Name] = v
		}
		if v.PersistentVolumeClaim != nil && c.createsClaim(v.PersistentVolumeClaim.ClaimName) {
			c.invalid(at.Child("persistentVolumeClaim", "claimName"), v.PersistentVolumeClaim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume")
		}
	}
}

// validVolume returns the volume of a name, unless there is something wrong with it.
func (c *checker) validVolume(name string) *corev1.Volume { return c.validVolumes[name] }

// createsClaim says that a claim is made for one of the pod's ephemeral volumes.
func (c *checker) createsClaim(name string) bool {
	return c.pod.Name != "" && slices.ContainsFunc(c.pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil && c.pod.Name+"-"+v.Name == name
	})
}

// volumeSource checks that a volume has one source, and that source.
func (c *checker) volumeSource(path *field.Path, v *corev1.Volume) {
	if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() < 0 {
		c.forbidden(path.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
	if v.EmptyDir != nil && v.EmptyDir.Mode != nil && (*v.EmptyDir.Mode < 0 || *v.EmptyDir.Mode > 0o1777) {
		c.invalid(path.Child("emptyDir", "mode"), *v.EmptyDir.Mode, "must be a number between 0 and 01777 (octal), both inclusive")
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
			c.forbidden(path.Child(f.Name), "may not specify more than 1 volume type")
			continue
		}
		first = f.Name
	}
	c.firstSource(path, v, first)
}

// firstSource checks the source that counts when somebody wrote several.
func (c *checker) firstSource(path *field.Path, v *corev1.Volume, name string) {
	at := path.Child(name)
	switch name {
	case "hostPath":
		c.hostPath(at, v.HostPath)
	case "secret":
		c.fileSource(at, "secretName", v.Secret.SecretName, v.Secret.DefaultMode)
		c.userID(at.Child("defaultUser"), v.Secret.DefaultUser)
		c.items(at.Child("items"), v.Secret.Items)
	case "configMap":
		c.fileSource(at, "name", v.ConfigMap.Name, v.ConfigMap.DefaultMode)
		c.userID(at.Child("defaultUser"), v.ConfigMap.DefaultUser)
		c.items(at.Child("items"), v.ConfigMap.Items)
	case "downwardAPI":
		c.fileMode(at.Child("defaultMode"), v.DownwardAPI.DefaultMode)
		c.userID(at.Child("defaultUser"), v.DownwardAPI.DefaultUser)
		for i := range v.DownwardAPI.Items {
			c.downwardFile(at, &v.DownwardAPI.Items[i])
		}
	case "projected":
		c.projected(at, v.Projected)
	case "persistentVolumeClaim":
		if v.PersistentVolumeClaim.ClaimName == "" {
			c.required(at.Child("claimName"), "")
		}
	case "ephemeral":
		c.ephemeralVolume(path, v)
	case "image":
		if v.Image.Reference == "" {
			c.required(at.Child("reference"), "")
		}
		oneOf(c, at.Child("pullPolicy"), v.Image.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	case "nfs":
		c.nfs(at, v.NFS)
	case "iscsi":
		s := v.ISCSI
		c.iscsi(at, iscsiFields{
			portal: s.TargetPortal, iqn: s.IQN, lun: s.Lun, secret: s.SecretRef != nil,
			chapDiscovery: s.DiscoveryCHAPAuth, chapSession: s.SessionCHAPAuth, initiator: s.InitiatorName,
		})
	}
}

func (c *checker) hostPath(path *field.Path, source *corev1.HostPathVolumeSource) {
	if source.Path == "" {
		c.required(path.Child("path"), "")
		return
	}
	c.noBacksteps(path.Child("path"), source.Path)
	oneOf(c, path.Child("type"), *source.Type,
		corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
		corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)
}

func (c *checker) fileSource(path *field.Path, nameField, name string, mode *int32) {
	if name == "" {
		c.required(path.Child(nameField), "")
	}
	c.fileMode(path.Child("defaultMode"), mode)
}

func (c *checker) fileMode(path *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

func (c *checker) items(path *field.Path, items []corev1.KeyToPath) {
	for i, item := range items {
		at := path.Index(i)
		if item.Key == "" {
			c.required(at.Child("key"), "")
		}
		if item.Path == "" {
			c.required(at.Child("path"), "")
		}
		c.fileName(at.Child("path"), item.Path)
		c.fileMode(at.Child("mode"), item.Mode)
		c.userID(at.Child("user"), item.User)
	}
}

// downwardFile reports at path, not at the file: so does the API server.
func (c *checker) downwardFile(path *field.Path, file *corev1.DownwardAPIVolumeFile) {
	if file.Path == "" {
		c.required(path.Child("path"), "")
	}
	c.fileName(path.Child("path"), file.Path)
	switch {
	case file.FieldRef != nil:
		c.fieldRef(path.Child("fieldRef"), file.FieldRef, volumeFields())
		if file.ResourceFieldRef != nil {
			c.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case file.ResourceFieldRef != nil && file.ResourceFieldRef.ContainerName == "":
		c.required(path.Child("resourceFieldRef", "containerName"), "")
	case file.ResourceFieldRef != nil:
		c.resourceFieldRef(path.Child("resourceFieldRef"), file.ResourceFieldRef)
	default:
		c.required(path, "one of fieldRef and resourceFieldRef is required")
	}
	c.fileMode(path.Child("mode"), file.Mode)
	c.userID(path.Child("user"), file.User)
}

func (c *checker) projected(path *field.Path, projected *corev1.ProjectedVolumeSource) {
	c.fileMode(path.Child("defaultMode"), projected.DefaultMode)
	c.userID(path.Child("defaultUser"), projected.DefaultUser)
	paths := map[string]bool{}
	unique := func(name, shown string) {
		if name != "" && paths[name] {
			c.invalid(path, shown, "conflicting duplicate paths")
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
			c.forbidden(at, "may not specify more than 1 volume type per source")
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

func (c *checker) projectedItems(path *field.Path, items []corev1.KeyToPath, unique func(string)) {
	c.items(path, items)
	for _, item := range items {
		unique(item.Path)
	}
}

func (c *checker) accountToken(volume, path *field.Path, token *corev1.ServiceAccountTokenProjection) {
	if c.pod.Spec.ServiceAccountName == "" {
		c.forbidden(path, "must not be specified when serviceAccountName is not set")
	}
	if *token.ExpirationSeconds < 10*60 {
		c.invalid(path.Child("expirationSeconds"), *token.ExpirationSeconds, "may not specify a duration less than 10 minutes")
	}
	if *token.ExpirationSeconds > 1<<32 {
		c.invalid(path.Child("expirationSeconds"), *token.ExpirationSeconds, "may not specify a duration larger than 2^32 seconds")
	}
	if token.Path == "" {
		c.required(volume.Child("path"), "")
		return
	}
	c.fileName(volume.Child("path"), token.Path)
}

func (c *checker) ephemeralVolume(path *field.Path, v *corev1.Volume) {
	if t := path.Child("ephemeral", "volumeClaimTemplate"); v.Ephemeral.VolumeClaimTemplate == nil {
		c.required(t, "")
	} else {
		c.claimTemplate(t, v.Ephemeral.VolumeClaimTemplate)
	}
	if c.pod.Name == "" || v.Name == "" {
		return
	}
	claim := c.pod.Name + "-" + v.Name
	for _, msg := range validation.IsDNS1123Subdomain(claim) {
		c.invalid(path.Child("name"), v.Name, fmt.Sprintf("PVC name %q: %v", claim, msg))
	}
}

func (c *checker) nfs(at *field.Path, source *corev1.NFSVolumeSource) {
	if source.Server == "" {
		c.required(at.Child("server"), "")
	}
	if source.Path == "" {
		c.required(at.Child("path"), "")
	}
	if !path.IsAbs(source.Path) {
		c.invalid(at.Child("path"), source.Path, "must be an absolute path")
	}
}

// iscsiFields are what the two kinds of iSCSI sources have in common.
type iscsiFields struct {
	portal, iqn                string
	lun                        int32
	chapDiscovery, chapSession bool
	secret                     bool
	initiator                  *string
}

// iqnFormat is the name of an iSCSI target.
var iqnFormat = regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)

func (c *checker) iscsi(at *field.Path, f iscsiFields) {
	if f.portal == "" {
		c.required(at.Child("targetPortal"), "")
	}
	if f.iqn == "" {
		c.required(at.Child("iqn"), "")
	} else {
		c.iscsiName(at.Child("iqn"), f.iqn)
	}
	if f.lun < 0 || f.lun > 255 {
		c.invalid(at.Child("lun"), f.lun, validation.InclusiveRangeError(0, 255))
	}
	if (f.chapDiscovery || f.chapSession) && !f.secret {
		c.required(at.Child("secretRef"), "")
	}
	if f.initiator != nil {
		c.iscsiName(at.Child("initiatorName"), *f.initiator)
	}
}

func (c *checker) iscsiName(at *field.Path, name string) {
	switch {
	case strings.HasPrefix(name, "iqn") && !iqnFormat.MatchString(name),
		strings.HasPrefix(name, "eui") && len(name) != 20,
		strings.HasPrefix(name, "naa") && len(name) != 20 && len(name) != 36,
		!strings.HasPrefix(name, "iqn") && !strings.HasPrefix(name, "eui") && !strings.HasPrefix(name, "naa"):
		c.invalid(at, name, "must be valid format")
	}
}

// noBacksteps checks that a path does not climb.
func (c *checker) noBacksteps(path *field.Path, value string) {
	if hasBacksteps(value) {
		c.invalid(path, value, "must not contain '..'")
	}
}

func hasBacksteps(value string) bool { return slices.Contains(strings.Split(value, "/"), "..") }

// descendingPath checks that a path stays below where it starts.
func (c *checker) descendingPath(at *field.Path, value string) {
	if path.IsAbs(value) {
		c.invalid(at, value, "must be a relative path")
	}
	c.noBacksteps(at, value)
}

// fileName checks the path of a file in a volume that is written atomically: names that start with two dots
// are taken by the writer.
func (c *checker) fileName(path *field.Path, value string) {
	c.descendingPath(path, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") {
		c.invalid(path, value, "must not start with '..'")
	}
}
