package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbomOf: every linked module by version and package URL, the program by its sum, and the same bytes twice.
func sbomOf(t *testing.T, programs []program) {
	modules, err := linked(t.Context(), "../..", programs)
	if err != nil {
		t.Fatal(err)
	}
	render := func() []byte {
		t.Helper()
		text, err := sbom("1.2.3+4.gabc", "1700000000", programs, modules)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := render()
	if !bytes.Equal(text, render()) {
		t.Error("a second run wrote other bytes")
	}
	if strings.Contains(string(text), "serialNumber") {
		t.Error("it has a serial number")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" ||
		bom.Metadata.Component.PackageURL != "pkg:golang/github.com/trimtab/trimtab@1.2.3%2B4.gabc" {
		t.Errorf("it is %s %v of %s: %+v", bom.BOMFormat, bom.SpecVersion, bom.Metadata.Timestamp, bom.Metadata.Component)
	}
	byRef := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		if _, twice := byRef[c.BOMRef]; twice {
			t.Errorf("%s is in it twice", c.BOMRef)
		}
		byRef[c.BOMRef] = c
	}
	holds := map[string][]string{}
	for _, d := range *bom.Dependencies {
		holds[d.Ref] = *d.Dependencies
	}
	want := map[string]string{"stdlib": strings.TrimPrefix(programs[0].info.GoVersion, "go")}
	for _, d := range programs[0].info.Deps {
		want[d.Path] = d.Version
	}
	for _, ref := range holds["file:trimtab"] {
		c := byRef[ref]
		if c.Version == "" || c.Version != want[c.Name] || c.PackageURL != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%s: %+v, linked: %q", ref, c, want[c.Name])
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("linked, and not in it: %v", want)
	}
	sum, err := exec.Command("sha256sum", programs[0].file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if h := byRef["file:trimtab"].Hashes; h == nil || (*h)[0].Value != strings.Fields(string(sum))[0] {
		t.Errorf("the program's sum is %v, want %s", h, sum)
	}
}

// TestSBOMTime: none without SOURCE_DATE_EPOCH, and no guess at one that is no number.
func TestSBOMTime(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := readPrograms([]string{self})
	if err != nil {
		t.Fatal(err)
	}
	modules := []module{{path: stdlib, version: "go1.26"}}
	if text, err := sbom("1", "", programs, modules); err != nil || strings.Contains(string(text), "timestamp") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := sbom("1", "yesterday", programs, modules); err == nil {
		t.Error("yesterday was taken for a time")
	}
}
