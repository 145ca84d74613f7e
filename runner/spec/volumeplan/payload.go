package volumeplan

import (
	"cmp"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner/spec"
	"monopod/runner/spec/environ"
)

// File is a file of a volume that is made of objects or of fields of the pod.
type File struct {
	Data []byte
	Mode fs.FileMode
	// UID owns it; nil: root.
	UID *int64 `json:",omitempty"`
}

// Followed reports whether the files of a volume follow edits of its objects.
func Followed(v *corev1.VolumeSource) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// Files returns what a volume of the Followed kinds holds, by path. It reads Pod, Refs, Host and API of the input. An
// error for which IsMissing reports true names what does not exist.
//
// A volume that would be larger than a limit is an error before its content is copied: one key of a ConfigMap may be shown
// under any number of paths.
func Files(in spec.Input, v *corev1.VolumeSource) (map[string]File, error) {
	set := &fileSet{files: map[string]File{}, sizes: map[string]int{}}
	return set.files, set.add(in, v)
}

// CheckFiles reports when the volumes of the Followed kinds that a pod uses would be too large together. It copies nothing.
func CheckFiles(in spec.Input, plans []Plan) error {
	total := 0
	for _, p := range plans {
		if p.Files == nil {
			continue
		}
		set := &fileSet{sizes: map[string]int{}}
		if set.add(in, p.Files) != nil {
			continue // Files reports it
		}
		if total += set.bytes; total > manifests.MaxVolumeBytes {
			return fmt.Errorf("volume %q: with its files the pod's volumes of ConfigMaps, Secrets and fields have more than %d MiB together",
				p.Name, manifests.MaxVolumeBytes>>20)
		}
	}
	return nil
}

// add enters the files of a volume.
func (s *fileSet) add(in spec.Input, v *corev1.VolumeSource) error {
	var err error
	switch {
	case v.ConfigMap != nil:
		err = configMapFiles(in, s, configMapSource{v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, fileDefaults{v.ConfigMap.DefaultMode, v.ConfigMap.DefaultUser}})
	case v.Secret != nil:
		err = secretFiles(in, s, configMapSource{v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, fileDefaults{v.Secret.DefaultMode, v.Secret.DefaultUser}})
	case v.DownwardAPI != nil:
		err = downwardFiles(in, s, v.DownwardAPI.Items, fileDefaults{v.DownwardAPI.DefaultMode, v.DownwardAPI.DefaultUser})
	case v.Projected != nil:
		err = projectedFiles(in, s, v.Projected)
	}
	return err
}

// fileSet are the files of a volume, within the limits of one.
type fileSet struct {
	// files is nil when only their sizes are asked for.
	files map[string]File
	sizes map[string]int
	bytes int
}

// reserve makes room for a file of n bytes at a path.
func (s *fileSet) reserve(path string, n int) error {
	s.bytes += n - s.sizes[path]
	s.sizes[path] = n
	switch {
	case s.bytes > manifests.MaxVolumeBytes:
		return fmt.Errorf("with the file %s its files have more than %d MiB together, which is the limit of one volume", path, manifests.MaxVolumeBytes>>20)
	case len(s.sizes) > manifests.MaxVolumeFiles:
		return fmt.Errorf("it has more than %d files, which is the limit of one volume", manifests.MaxVolumeFiles)
	}
	return nil
}

// configMapSource is what volumes of ConfigMaps and Secrets have in common.
type configMapSource struct {
	name     string
	items    []corev1.KeyToPath
	optional *bool
	defaults fileDefaults
}

// fileDefaults are what a volume says of files that say nothing of it themselves.
type fileDefaults struct {
	mode *int32
	user *int64
}

// file makes a file with a mode and an owner of its own, or those of the volume.
func (d fileDefaults) file(data []byte, mode *int32, user *int64) File {
	return File{Data: data, Mode: modeOf(mode, d.mode), UID: cmp.Or(user, d.user)}
}

func configMapFiles(in spec.Input, files *fileSet, src configMapSource) error {
	m := in.Refs.ConfigMap(src.name)
	if m == nil && src.name == manifests.RootCAName && in.API != nil {
		if text := in.API.RootCA(); text != "" {
			m = &corev1.ConfigMap{Data: map[string]string{"ca.crt": text}}
		}
	}
	if m == nil {
		if ptr.Deref(src.optional, false) {
			return nil
		}
		return environ.Missing(in, cause.ConfigMap, src.name)
	}
	return src.put(files, content{m.Data, m.BinaryData}, cause.ConfigMap)
}

func secretFiles(in spec.Input, files *fileSet, src configMapSource) error {
	s := in.Refs.Secret(src.name)
	if s == nil {
		if ptr.Deref(src.optional, false) {
			return nil
		}
		return environ.Missing(in, cause.Secret, src.name)
	}
	return src.put(files, content{nil, s.Data}, cause.Secret)
}

// content is that of a ConfigMap or a Secret; text goes before bytes.
type content struct {
	text  map[string]string
	bytes map[string][]byte
}

// size returns the length of a value.
func (c content) size(key string) (int, bool) {
	if value, ok := c.text[key]; ok {
		return len(value), true
	}
	value, ok := c.bytes[key]
	return len(value), ok
}

// keys returns all keys.
func (c content) keys() iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range c.text {
			if !yield(key) {
				return
			}
		}
		for key := range c.bytes {
			if _, both := c.text[key]; !both && !yield(key) {
				return
			}
		}
	}
}

// copied returns the values that were asked for, each copied once however many files show it.
func (c content) copied() func(key string) []byte {
	made := map[string][]byte{}
	return func(key string) []byte {
		text, isText := c.text[key]
		if !isText {
			return c.bytes[key]
		}
		if _, ok := made[key]; !ok {
			made[key] = []byte(text)
		}
		return made[key]
	}
}

// put enters all keys, or those that items name, of an object of this kind.
func (src configMapSource) put(files *fileSet, data content, kind string) error {
	value := data.copied()
	enter := func(path, key string, mode *int32, user *int64) error {
		n, _ := data.size(key)
		if err := files.reserve(path, n); err != nil {
			return err
		}
		if files.files != nil {
			files.files[path] = src.defaults.file(value(key), mode, user)
		}
		return nil
	}
	if len(src.items) == 0 {
		for key := range data.keys() {
			if err := enter(key, key, nil, nil); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range src.items {
		if _, ok := data.size(item.Key); ok {
			if err := enter(path.Clean(item.Path), item.Key, item.Mode, item.User); err != nil {
				return err
			}
		} else if !ptr.Deref(src.optional, false) {
			return src.missingKey(kind, item.Key)
		}
	}
	return nil
}

// missingKey uses a kubelet's words.
func (src configMapSource) missingKey(kind, key string) error {
	if kind == cause.Secret {
		return environ.MissingKey(kind, src.name, key, "references non-existent secret key: %s", key)
	}
	return environ.MissingKey(kind, src.name, key, "configmap references non-existent config key: %s", key)
}

func modeOf(own, common *int32) fs.FileMode {
	for _, m := range []*int32{own, common} {
		if m != nil {
			return fs.FileMode(*m) & fs.ModePerm
		}
	}
	return fs.FileMode(corev1.ConfigMapVolumeSourceDefaultMode)
}

func downwardFiles(in spec.Input, files *fileSet, items []corev1.DownwardAPIVolumeFile, defaults fileDefaults) error {
	for i := range items {
		item := &items[i]
		value, err := downwardText(in, item)
		if err != nil {
			return err
		}
		at := path.Clean(item.Path)
		if err := files.reserve(at, len(value)); err != nil {
			return err
		}
		if files.files != nil {
			files.files[at] = defaults.file([]byte(value), item.Mode, item.User)
		}
	}
	return nil
}

func downwardText(in spec.Input, item *corev1.DownwardAPIVolumeFile) (string, error) {
	if ref := item.ResourceFieldRef; ref != nil {
		c, err := spec.FindContainer(in.Pod, ref.ContainerName)
		if err != nil {
			return "", err
		}
		return environ.Resource(in, c, ref)
	}
	if item.FieldRef == nil {
		return "", fmt.Errorf("the file %s shows no field", item.Path)
	}
	switch item.FieldRef.FieldPath {
	case "metadata.labels":
		return formatMap(in.Pod.Labels), nil
	case "metadata.annotations":
		return formatMap(in.Pod.Annotations), nil
	}
	return environ.Field(in, item.FieldRef.FieldPath)
}

// formatMap writes one sorted line for each key: key="quoted value".
func formatMap(m map[string]string) string {
	var b []byte
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, '\n')
		}
		b = strconv.AppendQuote(append(append(b, key...), '='), m[key])
	}
	return string(b)
}

func projectedFiles(in spec.Input, files *fileSet, p *corev1.ProjectedVolumeSource) error {
	defaults := fileDefaults{p.DefaultMode, p.DefaultUser}
	for i := range p.Sources {
		var err error
		switch s := &p.Sources[i]; {
		case s.ConfigMap != nil:
			err = configMapFiles(in, files, configMapSource{s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, defaults})
		case s.Secret != nil:
			err = secretFiles(in, files, configMapSource{s.Secret.Name, s.Secret.Items, s.Secret.Optional, defaults})
		case s.DownwardAPI != nil:
			err = downwardFiles(in, files, s.DownwardAPI.Items, defaults)
		case s.ServiceAccountToken != nil:
			err = tokenFile(in, files, s.ServiceAccountToken, defaults)
		default:
			err = fmt.Errorf("source %d of the projected volume is not supported", i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxToken bounds the size of a token.
const maxToken = 16 << 10

// tokenFile adds the token of a service account.
func tokenFile(in spec.Input, files *fileSet, t *corev1.ServiceAccountTokenProjection, defaults fileDefaults) error {
	at := path.Clean(t.Path)
	if files.files == nil {
		return files.reserve(at, maxToken)
	}
	if in.API == nil {
		return fmt.Errorf("the token %s cannot be issued: the Kubernetes API of monopod does not run here", t.Path)
	}
	token, err := in.API.Token(in.Pod, t)
	if err != nil {
		return err
	}
	if err := files.reserve(at, len(token)); err != nil {
		return err
	}
	f := defaults.file(token, nil, defaults.user)
	if uid := commonUser(&in.Pod.Spec); uid != nil && f.UID == nil {
		f.UID, f.Mode = uid, 0o600
	} else if s := in.Pod.Spec.SecurityContext; s != nil && s.FSGroup != nil {
		f.Mode = 0o600 // the group may also read it, other users may not
	}
	files.files[at] = f
	return nil
}

// commonUser returns the user of all containers of a pod; nil if they differ, or come from images. As with a kubelet, a token belongs to
// that user.
func commonUser(s *corev1.PodSpec) *int64 {
	var common *int64
	first := true
	for c := range manifests.AllContainers(s) {
		var own *int64
		if s.SecurityContext != nil {
			own = s.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			own = c.SecurityContext.RunAsUser
		}
		if own == nil || !first && *own != *common {
			return nil
		}
		common, first = own, false
	}
	return common
}
