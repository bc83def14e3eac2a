__global__ void f() {}
