//go:build ignore

/* By this symbol programs tell that they are before the virtual GPU. Weak, since a
 * program may hold several of the libraries inside. */
__attribute__((visibility("default"), weak)) const char trimtab_vgpu_version[] = "1";
