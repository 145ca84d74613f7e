package spec

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// File is a file of a volume that is made of objects or of fields of the pod.
type File struct {
	Data []byte
	Mode fs.FileMode
	// UID owns it; nil: root.
	UID *int64 `json:",omitempty"`
}

// Followed says that a volume has content that follows the edits of what it is made of.
func Followed(v *corev1.VolumeSource) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// VolumeFiles returns what a volume of the Followed kinds holds, by path. It reads Pod, Refs and Host of the input. An
// error that is a *MissingError names what does not exist.
func VolumeFiles(in Input, v *corev1.VolumeSource) (map[string]File, error) {
	files := map[string]File{}
	var err error
	switch {
	case v.ConfigMap != nil:
		err = configMapFiles(in, files, configMapSource{v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, fileDefaults{v.ConfigMap.DefaultMode, v.ConfigMap.DefaultUser}})
	case v.Secret != nil:
		err = secretFiles(in, files, configMapSource{v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, fileDefaults{v.Secret.DefaultMode, v.Secret.DefaultUser}})
	case v.DownwardAPI != nil:
		err = downwardFiles(in, files, v.DownwardAPI.Items, fileDefaults{v.DownwardAPI.DefaultMode, v.DownwardAPI.DefaultUser})
	case v.Projected != nil:
		err = projectedFiles(in, files, v.Projected)
	}
	return files, err
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

func configMapFiles(in Input, files map[string]File, src configMapSource) error {
	m := in.Refs.ConfigMap(src.name)
	if m == nil {
		if isTrue(src.optional) {
			return nil
		}
		return missing("configmap %q not found", src.name)
	}
	data := maps.Clone(m.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range m.Data {
		data[key] = []byte(value)
	}
	return src.put(files, data, "configmap references non-existent config key: %s")
}

func secretFiles(in Input, files map[string]File, src configMapSource) error {
	s := in.Refs.Secret(src.name)
	if s == nil {
		if isTrue(src.optional) {
			return nil
		}
		return missing("secret %q not found", src.name)
	}
	return src.put(files, s.Data, "references non-existent secret key: %s")
}

// put enters all keys, or those that items name.
func (src configMapSource) put(files map[string]File, data map[string][]byte, noKey string) error {
	if len(src.items) == 0 {
		for key, value := range data {
			files[key] = src.defaults.file(value, nil, nil)
		}
		return nil
	}
	for _, item := range src.items {
		value, ok := data[item.Key]
		switch {
		case ok:
			files[path.Clean(item.Path)] = src.defaults.file(value, item.Mode, item.User)
		case !isTrue(src.optional):
			return missing(noKey, item.Key)
		}
	}
	return nil
}

func modeOf(own, common *int32) fs.FileMode {
	for _, m := range []*int32{own, common} {
		if m != nil {
			return fs.FileMode(*m) & fs.ModePerm
		}
	}
	return fs.FileMode(corev1.ConfigMapVolumeSourceDefaultMode)
}

func downwardFiles(in Input, files map[string]File, items []corev1.DownwardAPIVolumeFile, defaults fileDefaults) error {
	for i := range items {
		item := &items[i]
		value, err := downwardText(in, item)
		if err != nil {
			return err
		}
		files[path.Clean(item.Path)] = defaults.file([]byte(value), item.Mode, item.User)
	}
	return nil
}

func downwardText(in Input, item *corev1.DownwardAPIVolumeFile) (string, error) {
	if ref := item.ResourceFieldRef; ref != nil {
		c, err := findContainer(in.Pod, ref.ContainerName)
		if err != nil {
			return "", err
		}
		return resourceValue(in, c, ref)
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
	return fieldValue(in, item.FieldRef.FieldPath)
}

// formatMap writes one sorted line for each key: key="quoted value".
func formatMap(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

func projectedFiles(in Input, files map[string]File, p *corev1.ProjectedVolumeSource) error {
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
		default:
			err = fmt.Errorf("source %d of the projected volume is not supported", i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
