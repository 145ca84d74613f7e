package main

import (
	"fmt"
	"time"
)

// imageKeys are about getting images, and about getting rid of them.
func imageKeys() []configKey {
	return []configKey{
		{path: "preloadDirectories", kind: kindPaths, doc: "Directories with OCI or docker image archives, imported at start and when they change. As long as an archive is there, its images are not removed."},
		{path: "registryConfig", kind: kindPath, derived: "`config.json` in `rootDirectory`", doc: "File with registry credentials, in the format of docker's `config.json`. It may be missing."},
		{path: "imageGCHighThresholdPercent", kind: kindInt, def: int64(85), doc: "How full the file system of the images is, in percent, when images are removed that nobody needs. 100: none is for that."},
		{path: "imageGCLowThresholdPercent", kind: kindInt, def: int64(80), doc: "How full it is when removing them ends."},
		{path: "imageMinimumGCAge", kind: kindDuration, def: 2 * time.Minute, doc: "How long an image stays at least after it has come."},
		{path: "imageMaximumGCAge", kind: kindDuration, def: time.Duration(0), doc: "How long an image stays that nobody uses, however empty the disk is. 0s: for ever."},
	}
}

// images finds what is wrong with keys about images.
func (c *configCheck) images(cfg *Config) {
	high, low := cfg.ImageGCHighThresholdPercent, cfg.ImageGCLowThresholdPercent
	for _, p := range []struct {
		key   string
		value int
	}{{"imageGCHighThresholdPercent", high}, {"imageGCLowThresholdPercent", low}} {
		if p.value < 0 || p.value > 100 {
			c.add(p.key, fmt.Sprintf("%d is not between 0 and 100", p.value), "it is a percentage")
		}
	}
	if low >= high {
		c.add("imageGCLowThresholdPercent", fmt.Sprintf("%d is not less than imageGCHighThresholdPercent, which is %d", low, high), "")
	}
	if cfg.ImageMinimumGCAge < 0 {
		c.add("imageMinimumGCAge", durationText(cfg.ImageMinimumGCAge)+" is less than 0s", "")
	}
	if cfg.ImageMaximumGCAge != 0 && cfg.ImageMaximumGCAge <= cfg.ImageMinimumGCAge {
		c.add("imageMaximumGCAge", fmt.Sprintf("%s is not more than imageMinimumGCAge, which is %s", durationText(cfg.ImageMaximumGCAge), durationText(cfg.ImageMinimumGCAge)), "0s switches it off")
	}
}
